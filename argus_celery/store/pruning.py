"""What nobody needs any more: ended tasks and projects past their time, with all that hangs on them.

Each call takes a bounded number of rows. What a task that lives, a chord that was not sent or a debt still needs stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.records import ProjectStatus
from argus_celery.store.engine import Store
from argus_celery.store.results import kept
from argus_celery.store.schema import (
    alarms,
    attempts,
    chord_parts,
    chords,
    edges,
    events,
    groups,
    leases,
    projects,
    revoked,
    steps,
    tasks,
    waits,
)

t, p, c = tasks.c, projects.c, chords.c

ENDED = (ProjectStatus.COMPLETED, ProjectStatus.FAILED, ProjectStatus.CANCELLED)
ID = ""


@dataclass(frozen=True, slots=True)
class Ages:
    """For how long (milliseconds) what has ended is kept."""

    ended: int
    results: int | None
    """The same for results of tasks that are not durable and for saved groups; None is for ever."""


# --- projects ----------------------------------------------------------------------------------------------------


def ended_projects(store: Store, connection: Connection, age_ms: int, after: int, limit: int) -> list[int]:
    """Ids behind ``after``, in order, of projects that ended longer ago."""
    query = sa.select(p.id).where(*_is_over(store, age_ms), p.id > after).order_by(p.id).limit(limit)
    return list(connection.execute(query).scalars())


def is_over(store: Store, connection: Connection, project_id: int, age_ms: int) -> bool:
    """Looked at again, under the project's lock."""
    query = sa.select(p.id).where(p.id == project_id, *_is_over(store, age_ms))
    return connection.execute(query).first() is not None


def _is_over(store: Store, age_ms: int) -> tuple[sa.ColumnElement[bool], ...]:
    return (p.status.in_(ENDED), p.finished_at <= store.now - age_ms)


def open_projects(store: Store, connection: Connection, ages: Ages, after: int, limit: int) -> list[int]:
    """Ids behind ``after``, in order, of open projects with a task that ended longer ago: one index entry of each."""
    old = sa.select(sa.literal(1)).where(t.project_id == p.id, t.finished_at <= store.now - ages.ended).limit(1)
    is_open = (p.status == ProjectStatus.OPEN, p.id > after)
    query = sa.select(p.id).where(*is_open, old.scalar_subquery() == 1).order_by(p.id).limit(limit)
    return list(connection.execute(query).scalars())


def drop_project(connection: Connection, project_id: int) -> bool:
    """Delete the row of a project of which nothing is left; False if something is.

    The newest project's row stays: databases would give its id to the next project, and processes remember ids.
    """
    left = [
        sa.select(sa.literal(1)).where(table.c.project_id == project_id).limit(1) for table in (tasks, leases, chords)
    ]
    newer = sa.select(p.id).where(p.id > project_id).limit(1)
    if connection.execute(newer).first() is None or any(connection.execute(one).first() for one in left):
        return False
    connection.execute(sa.delete(events).where(events.c.project_id == project_id))
    connection.execute(sa.delete(projects).where(p.id == project_id))
    return True


# --- tasks -------------------------------------------------------------------------------------------------------


def lock_tasks_of_ended(store: Store, connection: Connection, project_id: int, limit: int) -> list[str]:
    """Lock ended tasks of a project that has ended, whatever their age."""
    return _locked(store, connection, project_id, _unneeded(), limit)


def lock_tasks_of_open(store: Store, connection: Connection, project_id: int, ages: Ages, limit: int) -> list[str]:
    """Lock tasks of an open project that ended longer ago, the oldest first."""
    return _locked(store, connection, project_id, _old(store, ages), limit)


def _locked(
    store: Store, connection: Connection, project_id: int, where: Sequence[sa.ColumnElement[bool]], limit: int
) -> list[str]:
    query = sa.select(t.id).where(t.project_id == project_id, *where).order_by(t.finished_at).limit(limit)
    return list(connection.execute(store.dialect.for_update(query, skip_locked=True)).scalars())


def _old(store: Store, ages: Ages) -> tuple[sa.ColumnElement[bool], ...]:
    """A kept result has an age of its own; the header of a chord that was not sent may have to be put back yet."""
    if ages.results is None:
        of_age = sa.not_(kept())
    else:
        of_age = sa.or_(sa.not_(kept()), t.finished_at <= store.now - ages.results)
    unsent = sa.exists().where(chord_parts.c.task_id == t.id, c.id == chord_parts.c.chord_id, c.sent_at.is_(None))
    return (t.finished_at <= store.now - ages.ended, of_age, ~unsent, *_unneeded())


def _unneeded() -> tuple[sa.ColumnElement[bool], ...]:
    """It has ended, owes nothing, and no task that lives comes after it and may ask for its result."""
    child = sa.exists().where(edges.c.parent_id == t.id, leases.c.task_id == edges.c.child_id)
    return (t.finished_at.is_not(None), t.undelivered == 0, ~child)


_OF_TASK = (
    steps.c.task_id,
    waits.c.task_id,
    attempts.c.task_id,
    alarms.c.task_id,
    edges.c.child_id,
    edges.c.parent_id,
)


def drop_tasks(connection: Connection, ids: Sequence[str]) -> None:
    """Delete these locked tasks and all that hangs on them, so that a task of the same id begins with nothing."""
    if not ids:
        return
    for column in (*_OF_TASK, t.id):
        connection.execute(sa.delete(column.table).where(column.in_(ids)))


# --- chords, groups, revocations ---------------------------------------------------------------------------------


def drop_chords(store: Store, connection: Connection, age_ms: int, limit: int) -> int:
    """Delete parts of chords that were sent longer ago and of whose header no task is left, then such chords.

    Also a chord whose header was never sent whole, in all that time.
    """
    header = sa.exists().where(chord_parts.c.chord_id == c.id, t.id == chord_parts.c.task_id)
    since = store.now - age_ms
    sent = (c.owed == 0, c.sent_at <= since, ~header)
    stillborn = (c.size.is_(None), c.done == 0, c.created_at <= since)
    return _drop_chords(connection, sa.or_(sa.and_(*sent), sa.and_(*stillborn)), limit)


def drop_chords_of(connection: Connection, project_id: int, limit: int) -> int:
    """The same of a project that has ended and has no task left."""
    return _drop_chords(connection, c.project_id == project_id, limit)


def _drop_chords(connection: Connection, where: sa.ColumnElement[bool], limit: int) -> int:
    ids = connection.execute(sa.select(c.id).where(where).limit(limit)).scalars().all()
    if not ids:
        return 0
    key = (chord_parts.c.chord_id, chord_parts.c.task_id)
    parts = connection.execute(sa.select(*key).where(chord_parts.c.chord_id.in_(ids)).limit(limit)).all()
    if parts:
        return _dropped(connection, chord_parts, sa.tuple_(*key).in_([tuple(row) for row in parts]), parts)
    return _dropped(connection, chords, c.id.in_(ids), ids)


def drop_groups(store: Store, connection: Connection, age_ms: int, limit: int) -> int:
    """Forget groups that were saved longer ago."""
    query = sa.select(groups.c.id).where(groups.c.created_at <= store.now - age_ms).limit(limit)
    ids = connection.execute(query).scalars().all()
    return _dropped(connection, groups, groups.c.id.in_(ids), ids)


def drop_revoked_ids(store: Store, connection: Connection, age_ms: int, limit: int) -> int:
    """Forget revoked ids for which no task has come for so long."""
    old = (revoked.c.kind == ID, revoked.c.created_at <= store.now - age_ms)
    ids = connection.execute(sa.select(revoked.c.value).where(*old).limit(limit)).scalars().all()
    return _dropped(connection, revoked, sa.and_(revoked.c.kind == ID, revoked.c.value.in_(ids)), ids)


def drop_stamps(store: Store, connection: Connection, age_ms: int, limit: int) -> int:
    """Forget stamps that were revoked longer ago, and none that a task that lives may bear.

    A task is taken to bear it if it was recorded before the stamp's time was over, whatever it is.
    """
    key = (revoked.c.kind, revoked.c.value)
    # Behind the look at the stamps, which are few: else the planner may begin with the tasks.
    query = sa.select(*key, revoked.c.created_at).where(revoked.c.kind > ID, revoked.c.created_at <= store.now - age_ms)
    found = connection.execute(query.order_by(revoked.c.created_at).limit(limit)).all()
    if not found:
        return 0
    alive = sa.select(sa.func.min(t.created_at)).select_from(leases.join(tasks, t.id == leases.c.task_id))
    first = connection.execute(alive).scalar()
    keys = [(row.kind, row.value) for row in found if first is None or row.created_at + age_ms < first]
    return _dropped(connection, revoked, sa.tuple_(*key).in_(keys), keys)


def _dropped(connection: Connection, table: sa.Table, where: sa.ColumnElement[bool], found: Sequence[Any]) -> int:
    if found:
        connection.execute(sa.delete(table).where(where))
    return len(found)


# --- looking ahead -----------------------------------------------------------------------------------------------


def count_projects(store: Store, connection: Connection, age_ms: int) -> int:
    """Those that would go now: none that keeps a task, and not the newest."""
    kept_task = sa.exists().where(t.project_id == p.id, sa.not_(sa.and_(*_unneeded())))
    alive = sa.exists().where(leases.c.project_id == p.id)
    newest = sa.select(sa.func.max(projects.alias("any").c.id)).scalar_subquery()
    where = (*_is_over(store, age_ms), ~kept_task, ~alive, p.id < newest)
    return int(connection.execute(sa.select(sa.func.count()).where(*where)).scalar_one())


def count_tasks(store: Store, connection: Connection, ages: Ages) -> int:
    """Those that would go now."""
    over = sa.and_(*_is_over(store, ages.ended), *_unneeded())
    old = sa.and_(p.status == ProjectStatus.OPEN, *_old(store, ages))
    source = tasks.join(projects, p.id == t.project_id)
    return int(connection.execute(sa.select(sa.func.count()).select_from(source).where(sa.or_(over, old))).scalar_one())
