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
from argus_celery.store.schema import tasks


@dataclass(frozen=True, slots=True)
class Known:
    """A task that is there already."""

    id: str
    project_id: int
    key: str | None
    name: str
    body: bytes
    outcome: TaskState | None


@dataclass(frozen=True, slots=True)
class Ending:
    """A terminal outcome; ``ran`` says whether a run ended with it, which then counts as an attempt."""

    task_id: str
    token: int
    state: TaskState
    error: str | None = None
    result: bytes | None = None
    ran: bool = False
    undelivered: bool = False


@dataclass(frozen=True, slots=True)
class Debt:
    """An ended task that still owes its outcome to a foreign result backend, or (dead) its errbacks."""

    task_id: str
    token: int
    name: str
    project_id: int
    state: TaskState
    result: bytes | None
    error: str | None
    message: Message


def insert(store: Store, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert new tasks; ``DuplicateRow`` if an id or key is there already."""
    connection.execute(sa.insert(tasks).values(created_at=store.now), list(rows))


def known(connection: Connection, ids: Collection[str], keys: Collection[tuple[int, str]]) -> list[Known]:
    """The tasks that have one of these ids or (project, key)s."""
    c = tasks.c
    query = sa.select(c.id, c.project_id, c.key, c.name, c.body, c.outcome)
    rows = list(connection.execute(query.where(c.id.in_(ids)))) if ids else []
    for project_id in sorted({project_id for project_id, _ in keys}):
        wanted = [key for other, key in keys if other == project_id]
        rows += connection.execute(query.where(c.project_id == project_id, c.key.in_(wanted)))
    return [
        Known(r.id, r.project_id, r.key, r.name, bytes(r.body), TaskState(r.outcome) if r.outcome else None)
        for r in rows
    ]


def messages(connection: Connection, ids: Collection[str]) -> dict[str, Message]:
    """The stored message of each task."""
    query = sa.select(tasks.c.id, tasks.c.message, tasks.c.body).where(tasks.c.id.in_(ids))
    return {row.id: unseal(row.message, row.body) for row in connection.execute(query)}


def ended_so(connection: Connection, task_id: str, token: int, state: TaskState) -> bool:
    """Was this outcome written under this token?"""
    query = sa.select(tasks.c.id).where(tasks.c.id == task_id, tasks.c.fence == token, tasks.c.outcome == state)
    return connection.execute(query).first() is not None


def end(store: Store, connection: Connection, endings: Sequence[Ending]) -> None:
    """Write the one terminal outcome of each task. The caller has just deleted the leases that bore the tokens."""
    if not endings:
        return
    connection.execute(
        sa.update(tasks)
        .where(tasks.c.id == sa.bindparam("task_id"))
        .values(
            outcome=sa.bindparam("state"),
            fence=sa.bindparam("token"),
            finished_at=store.now,
            result=sa.bindparam("value"),
            error=sa.bindparam("reason"),
            undelivered=sa.bindparam("owed"),
            attempts=tasks.c.attempts + sa.bindparam("ran", type_=sa.Integer),
        ),
        [
            {
                "task_id": one.task_id,
                "state": one.state,
                "token": one.token,
                "value": one.result,
                "reason": one.error,
                "owed": int(one.undelivered),
                "ran": int(one.ran),
            }
            for one in endings
        ],
    )


def note_attempt(connection: Connection, ids: Collection[str]) -> None:
    """A run ended without ending the task."""
    connection.execute(sa.update(tasks).where(tasks.c.id.in_(ids)).values(attempts=tasks.c.attempts + 1))


def charge_loss(connection: Connection, ids: Collection[str]) -> None:
    connection.execute(sa.update(tasks).where(tasks.c.id.in_(ids)).values(losses=tasks.c.losses + 1))


def worn_out(connection: Connection, ids: Collection[str]) -> dict[str, int]:
    """Those of ``ids`` whose losses have reached their limit, with the losses."""
    query = sa.select(tasks.c.id, tasks.c.losses).where(tasks.c.id.in_(ids), tasks.c.losses >= tasks.c.max_losses)
    return {row.id: row.losses for row in connection.execute(query)}


def replace_message(
    connection: Connection, task_id: str, name: str, queue: str, priority: int, message: Message
) -> None:
    """A retry or replace: the task goes on with another message."""
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
            retries=tasks.c.retries + 1,
            attempts=tasks.c.attempts + 1,
        )
    )


def insert_kept(store: Store, connection: Connection, row: Mapping[str, Any], message: Message) -> None:
    """The result of a task that was never recorded: a row that has ended."""
    envelope, body = seal(message)
    times = {"created_at": store.now, "finished_at": store.now}
    connection.execute(sa.insert(tasks).values(**row, message=envelope, body=body, **times))


def replace_kept(
    store: Store, connection: Connection, project_id: int, task_id: str, state: TaskState, result: bytes
) -> bool:
    """A kept result is stored once more; False if there is none in this project."""
    where = (tasks.c.id == task_id, tasks.c.project_id == project_id)
    values = {"outcome": state, "result": result, "finished_at": store.now}
    return connection.execute(sa.update(tasks).where(*where).values(**values)).rowcount > 0


def debts(store: Store, connection: Connection, limit: int, grace_ms: int = 0) -> list[Debt]:
    """What is owed; of a run that has ended with it only after a grace, in which the run pays by itself."""
    c = tasks.c
    nobody_else = c.outcome.in_((TaskState.DEAD, TaskState.CANCELLED, TaskState.EXPIRED))
    due = (c.undelivered > 0, sa.or_(nobody_else, c.finished_at <= store.now - grace_ms))
    columns = (c.id, c.fence, c.name, c.project_id, c.outcome, c.result, c.error, c.message, c.body)
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
            message=unseal(r.message, r.body),
        )
        for r in rows
    ]


def settle(connection: Connection, task_id: str, token: int) -> bool:
    """Strike out the debt; False if it was struck out before."""
    where = (tasks.c.id == task_id, tasks.c.fence == token, tasks.c.undelivered > 0)
    return connection.execute(sa.update(tasks).where(*where).values(undelivered=0)).rowcount > 0
