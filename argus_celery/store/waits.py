"""Rows of waits: what a suspended task waits for, and since when.

A row says something only while its lease stands as the suspension has left it; after that it is in nobody's way, and
goes with the next one, or with its task.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.records import NOBODY, Suspension
from argus_celery.store.engine import Store
from argus_celery.store.schema import events, leases, projects, waits

c = waits.c

ASLEEP = ""
"""In place of an event's name, of a task that waits for an instant only."""
NEVER = 2**51
"""When a row is due that waits for an event without a timeout. A replaced one is due later yet (``leases.PARKED``)."""


@dataclass(frozen=True, slots=True)
class Left:
    """An event that was sent, and for which somebody still waits."""

    project_id: int
    name: str


@dataclass(frozen=True, slots=True)
class Endless:
    """A task that waits for an event, however long it does not come."""

    task_id: str
    project: str
    event: str
    ms: int


def stands() -> tuple[sa.ColumnElement[bool], ...]:
    """The lease is as the suspension has left it. To be joined by task."""
    lease = leases.c
    return (lease.task_id == c.task_id, lease.holder == NOBODY, lease.eligible_at == sa.func.coalesce(c.until, NEVER))


def note(
    store: Store, connection: Connection, task_id: str, project_id: int, name: str, since: int, until: int | None
) -> None:
    """This task, whose lease is locked, waits for an event (``ASLEEP``: for none), until an instant or for ever."""
    forget(connection, [task_id])
    row = {"task_id": task_id, "project_id": project_id, "name": name, "since": since, "until": until}
    connection.execute(sa.insert(waits).values(row))


def forget(connection: Connection, task_ids: Collection[str]) -> None:
    connection.execute(sa.delete(waits).where(c.task_id.in_(task_ids)))


def of_event(
    connection: Connection, project_id: int, name: str, limit: int, among: Collection[str] | None = None
) -> list[str]:
    """Tasks that are suspended until this event comes, in the order of their ids."""
    query = sa.select(c.task_id).where(c.project_id == project_id, c.name == name, *stands())
    if among is not None:
        query = query.where(c.task_id.in_(among))
    return list(connection.execute(query.order_by(c.task_id).limit(limit)).scalars())


def awaited(store: Store, project: str) -> list[str]:
    """Names of the events for which tasks of this project are suspended now."""
    query = sa.select(c.name).join(projects, projects.c.id == c.project_id)
    query = query.where(projects.c.name == project, c.name != ASLEEP, *stands()).distinct().order_by(c.name)
    return store.statement(lambda connection: list(connection.execute(query).scalars()))


def left(connection: Connection, limit: int) -> list[Left]:
    """Events that were sent while somebody waited for them whom nobody has told. For the slow sweep."""
    sent = (events.c.project_id == c.project_id, events.c.name == c.name, events.c.sent_at.is_not(None))
    query = sa.select(c.project_id, c.name).where(*sent, *stands()).distinct().limit(limit)
    return [Left(*row) for row in connection.execute(query)]


def of_tasks(connection: Connection, task_ids: Collection[str]) -> dict[str, Suspension]:
    """What those of these tasks wait for that are suspended."""
    found: dict[str, Suspension] = {}
    for some in _pieces(sorted(task_ids)):
        query = sa.select(c.task_id, c.name, c.since, c.until).where(c.task_id.in_(some), *stands())
        found |= {row.task_id: Suspension(row.name or None, row.since, row.until) for row in connection.execute(query)}
    return found


def _pieces(ids: Sequence[str], size: int = 500) -> Iterator[Sequence[str]]:
    return (ids[start : start + size] for start in range(0, len(ids), size))


def counts(connection: Connection, project_ids: Collection[int]) -> dict[int, int]:
    """How many tasks of each of these projects are suspended."""
    query = sa.select(c.project_id, sa.func.count()).where(c.project_id.in_(project_ids), *stands())
    return {row[0]: row[1] for row in connection.execute(query.group_by(c.project_id))}


def endless(store: Store, connection: Connection, age_ms: int, limit: int) -> list[Endless]:
    """Tasks that have waited longer for an event without a timeout, the oldest first."""
    columns = (c.task_id, projects.c.name, c.name, (store.now - c.since).label("ms"))
    query = sa.select(*columns).where(projects.c.id == c.project_id, c.until.is_(None), *stands())
    query = query.where(c.since <= store.now - age_ms).order_by(c.since, c.task_id).limit(limit)
    return [Endless(*row) for row in connection.execute(query)]
