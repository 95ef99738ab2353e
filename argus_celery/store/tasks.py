"""Rows of tasks: written at enqueue, at the end, and where an attempt ended without ending the task."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.records import Message, TaskState
from argus_celery.store.engine import Store
from argus_celery.store.envelope import seal, unseal
from argus_celery.store.hot import Hot, as_new, new
from argus_celery.store.schema import edges, leases, tasks

OWES_MORE = 2
"""``undelivered`` of a task that owes something beside its result: its project is not done before.

Each try that fails adds 2, so that what is tried less often comes first and stays odd or even.
"""


@dataclass(frozen=True, slots=True)
class Known:
    """A task that is there already."""

    id: str
    project_id: int
    key: str | None
    name: str
    message: Message
    outcome: TaskState | None
    fence: int
    abandoned: bool
    """It never ran, because what leads to it failed: a row that was given up, or the kept result of one."""
    leads: bool = False
    """Others come after it (``argus_edges``)."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a task stands that others are to come after."""

    id: str
    project_id: int
    key: str | None
    outcome: TaskState | None


@dataclass(frozen=True, slots=True)
class Ended:
    """A task that failed, died or expired and can be put back."""

    id: str
    name: str
    queue: str
    priority: int
    fence: int
    unique_key: str | None
    limits: str | None
    leads: bool
    """Others come after it (``argus_edges``)."""


@dataclass(frozen=True, slots=True)
class Ending:
    """A terminal outcome.

    ``ran``: a run ended with it, which then counts as an attempt. ``undelivered``: a foreign result backend is to be
    told. ``follows``: chain, chord or errbacks are, too. ``abandoned``: what leads to it had failed. ``leads``: others
    come after it, and are told by the same transaction. ``alarms``: the project to be paused or cancelled for it.
    """

    task_id: str
    token: int
    state: TaskState
    error: str | None = None
    result: bytes | None = None
    ran: bool = False
    undelivered: bool = False
    follows: bool = False
    abandoned: bool = False
    leads: bool = False
    limited: bool = False
    """Its slots are given to others."""
    alarms: int | None = None


@dataclass(frozen=True, slots=True)
class Debt:
    """An ended task that still owes its outcome to a foreign result backend, or to what follows it."""

    task_id: str
    token: int
    name: str
    project_id: int
    state: TaskState
    result: bytes | None
    error: str | None
    abandoned: bool
    message: Message


def insert(store: Store, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert new tasks, which keep this order in lists; ``DuplicateRow`` if an id or key is there already."""
    _insert.run_all(store, connection, as_inserted(rows))


def as_inserted(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The values of ``inserted``."""
    return [as_new("task_", {**row, "number": number}) for number, row in enumerate(rows)]


_GIVEN = ("id", "project_id", "name", "key", "queue", "priority", "message", "body", "max_losses", "number")
_PLACE = ("parent_id", "root_id", "group_id", "unique_key", "limits")


def inserted(store: Store) -> sa.Insert:
    """The statement of ``insert``, for one row."""
    return sa.insert(tasks).values(created_at=store.now, **new(tasks, "task_", [*_GIVEN, *_PLACE]))


_insert = Hot(inserted)


def known(connection: Connection, ids: Collection[str], keys: Collection[tuple[int, str]]) -> list[Known]:
    """The tasks that have one of these ids or (project, key)s."""
    c = tasks.c
    columns = (c.id, c.project_id, c.key, c.name, c.message, c.body, c.outcome, c.fence, c.abandoned)
    query = sa.select(*columns, leads().label("leads"))
    rows = list(connection.execute(query.where(c.id.in_(ids)))) if ids else []
    for project_id in sorted({project_id for project_id, _ in keys}):
        wanted = [key for other, key in keys if other == project_id]
        rows += connection.execute(query.where(c.project_id == project_id, c.key.in_(wanted)))
    return [
        Known(
            id=r.id,
            project_id=r.project_id,
            key=r.key,
            name=r.name,
            message=unseal(r.message, r.body),
            outcome=TaskState(r.outcome) if r.outcome else None,
            fence=r.fence,
            abandoned=bool(r.abandoned),
            leads=bool(r.leads),
        )
        for r in rows
    ]


def places(connection: Connection, ids: Collection[str], keys: Collection[tuple[int, str]] = ()) -> list[Place]:
    """The durable tasks that have one of these ids or (project, key)s, without their wide columns."""
    c = tasks.c
    query = sa.select(c.id, c.project_id, c.key, c.outcome).where(c.max_losses > 0)
    rows = list(connection.execute(query.where(c.id.in_(ids)))) if ids else []
    for project_id in sorted({project_id for project_id, _ in keys}):
        wanted = [key for other, key in keys if other == project_id]
        rows += connection.execute(query.where(c.project_id == project_id, c.key.in_(wanted)))
    return [Place(row.id, row.project_id, row.key, TaskState(row.outcome) if row.outcome else None) for row in rows]


def messages(connection: Connection, ids: Collection[str]) -> dict[str, Message]:
    """The stored message of each task."""
    query = sa.select(tasks.c.id, tasks.c.message, tasks.c.body).where(tasks.c.id.in_(ids))
    return {row.id: unseal(row.message, row.body) for row in connection.execute(query)}


def ended_so(connection: Connection, task_id: str, token: int, state: TaskState) -> bool:
    """Was this outcome written under this token?"""
    query = sa.select(tasks.c.id).where(tasks.c.id == task_id, tasks.c.fence == token, tasks.c.outcome == state)
    return connection.execute(query).first() is not None


def ended(connection: Connection, ids: Collection[str]) -> list[str]:
    """Those of these tasks that have ended."""
    query = sa.select(tasks.c.id).where(tasks.c.id.in_(ids), tasks.c.outcome.is_not(None))
    return list(connection.execute(query).scalars())


def end(store: Store, connection: Connection, endings: Sequence[Ending]) -> None:
    """Write the one terminal outcome of each task. The caller has just deleted the leases that bore the tokens."""
    if not endings:
        return
    _end.run_all(
        store,
        connection,
        [
            {
                "task_id": one.task_id,
                "state": one.state,
                "token": one.token,
                "value": one.result,
                "reason": one.error,
                "owed": OWES_MORE if one.follows else int(one.undelivered),
                "never": int(one.abandoned),
                "ran": int(one.ran),
            }
            for one in endings
        ],
    )


@Hot
def _end(store: Store) -> sa.Update:
    return (
        sa.update(tasks)
        .where(tasks.c.id == sa.bindparam("task_id"))
        .values(
            outcome=sa.bindparam("state"),
            fence=sa.bindparam("token"),
            finished_at=store.now,
            result=sa.bindparam("value"),
            meta=None,
            error=sa.bindparam("reason"),
            undelivered=sa.bindparam("owed"),
            abandoned=sa.bindparam("never"),
            attempts=tasks.c.attempts + sa.bindparam("ran", type_=sa.Integer),
        )
    )


def note_attempt(connection: Connection, ids: Collection[str]) -> None:
    """A run ended without ending the task."""
    connection.execute(sa.update(tasks).where(tasks.c.id.in_(ids)).values(attempts=tasks.c.attempts + 1))


def charge_loss(connection: Connection, ids: Collection[str]) -> None:
    connection.execute(sa.update(tasks).where(tasks.c.id.in_(ids)).values(losses=tasks.c.losses + 1))


def worn_out(connection: Connection, ids: Collection[str]) -> dict[str, tuple[int, int]]:
    """Those of ``ids`` whose losses have reached their limit, with the losses and the limit."""
    c = tasks.c
    query = sa.select(c.id, c.losses, c.max_losses).where(c.id.in_(ids), c.losses >= c.max_losses)
    return {row.id: (row.losses, row.max_losses) for row in connection.execute(query)}


def replace_message(
    connection: Connection,
    task_id: str,
    name: str,
    queue: str,
    priority: int,
    message: Message,
    *,
    retried: bool,
    ran: bool,
    said: bytes | None = None,
) -> None:
    """A retry or replace: the task goes on with another message. ``ran``: a run ended with it, and is counted."""
    envelope, body = seal(message)
    connection.execute(
        sa.update(tasks)
        .where(tasks.c.id == task_id)
        .values(
            name=name,
            queue=queue,
            priority=priority,
            message=envelope,
            body=body,
            meta=said,
            retries=tasks.c.retries + int(retried),
            attempts=tasks.c.attempts + int(ran),
        )
    )


RETRIABLE = (TaskState.FAILED, TaskState.DEAD, TaskState.EXPIRED)
_ALIVE_AGAIN: dict[str, Any] = {
    "outcome": None,
    "result": None,
    "error": None,
    "finished_at": None,
    "meta": None,
    "abandoned": 0,
    "undelivered": 0,
    "losses": 0,
}


def retriable_names(connection: Connection, project_id: int, states: Collection[TaskState]) -> dict[str, str]:
    """Which tasks of the project in these states can be put back, with their names; by id."""
    query = sa.select(tasks.c.id, tasks.c.name).where(tasks.c.project_id == project_id, *_retriable(states))
    return dict(sorted((row.id, row.name) for row in connection.execute(query)))


def retriable(connection: Connection, project_id: int, ids: Collection[str]) -> list[Ended]:
    """Those of ``ids`` in the project that can be put back, as they stand; by id."""
    return _ended(connection, tasks.c.id.in_(ids), tasks.c.project_id == project_id, *_retriable())


def restartable(connection: Connection, project_id: int, task_id: str) -> list[Ended]:
    """The task, if it can be run again: it has ended with a run, or could not come to one, and was not revoked."""
    mine = (tasks.c.id == task_id, tasks.c.project_id == project_id)
    return _ended(connection, *mine, *_retriable((TaskState.SUCCEEDED, *RETRIABLE)))


def recorded(connection: Connection, project_id: int, ids: Collection[str]) -> list[str]:
    """Those of ``ids`` in the project that have a message of their own; by id."""
    mine = (tasks.c.id.in_(ids), tasks.c.project_id == project_id, tasks.c.queue != "")
    return list(connection.execute(sa.select(tasks.c.id).where(*mine).order_by(tasks.c.id)).scalars())


def give_up(connection: Connection, ids: Collection[str], why: str) -> None:
    """Those of these ended tasks that were not revoked never came, until what leads to them comes to them again."""
    values = {"outcome": TaskState.FAILED, "abandoned": 1, "result": None, "error": why, "undelivered": 0}
    ended = (tasks.c.id.in_(ids), tasks.c.outcome.is_not(None), tasks.c.outcome != TaskState.CANCELLED)
    connection.execute(sa.update(tasks).where(*ended).values(**values))


def abandoned(connection: Connection, ids: Collection[str]) -> list[Ended]:
    """Those of ``ids`` that were recorded and given up for what they come after; by id."""
    return _ended(connection, tasks.c.id.in_(ids), tasks.c.abandoned > 0, tasks.c.queue != "")


def _ended(connection: Connection, *which: sa.ColumnElement[bool]) -> list[Ended]:
    c = tasks.c
    columns = (c.id, c.name, c.queue, c.priority, c.fence, c.unique_key, c.limits, leads().label("leads"))
    rows = connection.execute(sa.select(*columns).where(*which).order_by(c.id))
    return [Ended(r.id, r.name, r.queue, r.priority, r.fence, r.unique_key, r.limits, bool(r.leads)) for r in rows]


def leads() -> sa.ColumnElement[int]:
    """Do others come after the task?"""
    child = sa.select(sa.literal(1)).where(edges.c.parent_id == tasks.c.id).limit(1).correlate(tasks)
    return sa.func.coalesce(child.scalar_subquery(), 0)


def alive_twin(connection: Connection, task_id: str) -> str | None:
    """The task that is alive of the kind of this one, of which only one may be."""
    twin = sa.select(leases.c.task_id).join(tasks, tasks.c.unique_key == leases.c.unique_key)
    return connection.execute(twin.where(tasks.c.id == task_id)).scalar()


def _retriable(states: Collection[TaskState] = RETRIABLE) -> tuple[sa.ColumnElement[bool], ...]:
    """What has a message of its own and did not only wait for another that failed."""
    return (tasks.c.outcome.in_(states), tasks.c.abandoned == 0, tasks.c.queue != "")


def put_back(connection: Connection, ids: Collection[str]) -> None:
    """These ended tasks live again, with their message and their attempts. The caller gives them leases."""
    connection.execute(sa.update(tasks).where(tasks.c.id.in_(ids)).values(**_ALIVE_AGAIN))


def forget_abandoned(connection: Connection, ids: Collection[str]) -> None:
    """The kept failures of tasks that may come after all: their results are pending again."""
    if ids:
        kept = (tasks.c.id.in_(ids), tasks.c.abandoned > 0, tasks.c.queue == "")
        connection.execute(sa.delete(tasks).where(*kept))


def revive(connection: Connection, row: Mapping[str, Any], fence: int) -> bool:
    """An abandoned task has its message after all, and lives; False if a rival was first."""
    where = (tasks.c.id == row["id"], tasks.c.fence == fence, tasks.c.abandoned > 0)
    return connection.execute(sa.update(tasks).where(*where).values(**row, **_ALIVE_AGAIN)).rowcount > 0


def insert_kept(store: Store, connection: Connection, row: Mapping[str, Any], message: Message) -> None:
    """The result of a task that was never recorded: a row that has ended."""
    envelope, body = seal(message)
    times = {"created_at": store.now, "finished_at": store.now if TaskState(row["outcome"]).ended else None}
    connection.execute(sa.insert(tasks).values(**row, message=envelope, body=body, **times))


def replace_kept(
    store: Store,
    connection: Connection,
    project_id: int,
    task_id: str,
    state: TaskState,
    result: bytes,
    *,
    abandoned: bool,
) -> bool:
    """A kept result is stored once more; False if there is none in this project, or a success."""
    where = (tasks.c.id == task_id, tasks.c.project_id == project_id, tasks.c.outcome != TaskState.SUCCEEDED)
    finished_at = store.now if state.ended else None
    values = {"outcome": state, "result": result, "finished_at": finished_at, "abandoned": int(abandoned)}
    return connection.execute(sa.update(tasks).where(*where).values(**values)).rowcount > 0


MOST_TRIES = 30_000
"""Where a small integer stops counting."""


def drop_kept(connection: Connection, task_id: str) -> None:
    """What was kept of a task goes: it is recorded now."""
    connection.execute(sa.delete(tasks).where(tasks.c.id == task_id, tasks.c.outcome == TaskState.RUNNING))


def debts(store: Store, connection: Connection, limit: int, grace_ms: int = 0) -> list[Debt]:
    """What is owed, the least tried first; of a run that has ended only after a grace, for it pays by itself."""
    c = tasks.c
    without_a_run = (TaskState.DEAD, TaskState.CANCELLED, TaskState.EXPIRED)
    nobody_else = sa.or_(c.outcome.in_(without_a_run), c.abandoned > 0)
    due = (c.undelivered > 0, sa.or_(nobody_else, c.finished_at <= store.now - grace_ms))
    columns = (c.id, c.fence, c.name, c.project_id, c.outcome, c.result, c.error, c.abandoned, c.message, c.body)
    rows = connection.execute(sa.select(*columns).where(*due).order_by(c.undelivered, c.id).limit(limit))
    return [
        Debt(
            task_id=r.id,
            token=r.fence,
            name=r.name,
            project_id=r.project_id,
            state=TaskState(r.outcome),
            result=None if r.result is None else bytes(r.result),
            error=r.error,
            abandoned=bool(r.abandoned),
            message=unseal(r.message, r.body),
        )
        for r in rows
    ]


def owing_more() -> sa.ColumnElement[bool]:
    return sa.and_(tasks.c.undelivered >= OWES_MORE, tasks.c.undelivered % 2 == OWES_MORE % 2)


def give_way(connection: Connection, task_id: str, token: int) -> None:
    """A debt that could not be paid now: it stands behind those that were tried less often."""
    where = (tasks.c.id == task_id, tasks.c.fence == token, tasks.c.undelivered.between(1, MOST_TRIES))
    connection.execute(sa.update(tasks).where(*where).values(undelivered=tasks.c.undelivered + 2))


def settle(connection: Connection, task_id: str, token: int) -> bool:
    """Strike out the debt; False if it was struck out before."""
    where = (tasks.c.id == task_id, tasks.c.fence == token, tasks.c.undelivered > 0)
    return connection.execute(sa.update(tasks).where(*where).values(undelivered=0)).rowcount > 0
