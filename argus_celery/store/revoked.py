"""Rows of revocations: ids of tasks that are not to run once they come, and stamps whose tasks are not to run."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.records import TaskState
from argus_celery.store.engine import Store
from argus_celery.store.schema import revoked, tasks

ID = ""
"""The kind of a task id. Any other kind is the name of a stamped header."""

c = revoked.c


@dataclass(frozen=True, slots=True)
class Met:
    """A task as a refused delivery of it finds it."""

    outcome: TaskState | None
    fence: int
    marked: bool
    """Its id was revoked before it was recorded."""
    why: str | None


def put(store: Store, connection: Connection, kind: str, values: Collection[str], why: str) -> None:
    """Note these; what is noted already stays as it is."""
    if not values:
        return
    now = connection.execute(sa.select(store.now)).scalar_one()
    rows = [{"kind": kind, "value": value, "reason": why, "created_at": now} for value in sorted(values)]
    store.dialect.insert_new(connection, revoked, rows)


def forget(connection: Connection, ids: Collection[str]) -> None:
    """These task ids are not revoked any more: they have ended so, or are put back."""
    connection.execute(sa.delete(revoked).where(c.kind == ID, c.value.in_(ids)))


def stamps(connection: Connection) -> list[tuple[str, str]]:
    """All revoked (header, value)s."""
    query = sa.select(c.kind, c.value).where(c.kind > ID).order_by(c.kind, c.value)
    return [(row.kind, row.value) for row in connection.execute(query)]


def marked(connection: Connection, ids: Collection[str]) -> set[str]:
    """Those of these ids that are revoked and have no task yet."""
    return set(connection.execute(sa.select(c.value).where(c.kind == ID, c.value.in_(ids))).scalars())


def met(connection: Connection, ids: Collection[str]) -> dict[str, Met]:
    """These tasks with their marks, in one look."""
    t = tasks.c
    marks = tasks.outerjoin(revoked, sa.and_(c.kind == ID, c.value == t.id))
    query = sa.select(t.id, t.outcome, t.fence, c.value, c.reason).select_from(marks).where(t.id.in_(ids))
    return {
        row.id: Met(TaskState(row.outcome) if row.outcome else None, row.fence, row.value is not None, row.reason)
        for row in connection.execute(query)
    }


def unmarked(task_id: sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    """Is this task's id not revoked? A scalar, so that each planner looks it up by the key."""
    mark = sa.select(sa.literal(1)).where(c.kind == ID, c.value == task_id).scalar_subquery()
    return mark.is_(None)
