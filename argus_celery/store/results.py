"""What ``AsyncResult`` is made of: the outcome of a task, or what its run says of itself while it lives.

A run's word is kept with its token, so that nobody reads what an earlier run has said.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.records import TaskState
from argus_celery.store.engine import Store
from argus_celery.store.names import is_possible
from argus_celery.store.reports import task_state
from argus_celery.store.schema import leases, revoked, tasks

FORGOTTEN = b""
"""In place of a result that was forgotten, or has expired."""

AT_ONCE = 1000
"""Ids in one statement."""


@dataclass(frozen=True, slots=True)
class ResultRow:
    state: TaskState
    retries: int
    result: bytes | None
    said: bytes | None
    """The document of ``update_state`` by the run under way, or of the last retry."""
    error: str | None
    name: str
    finished_at: int | None
    abandoned: bool
    """It never ran, for what leads to it had failed."""


def read(store: Store, ids: Collection[str]) -> dict[str, ResultRow]:
    """State and result of each of these tasks that the store knows."""
    return _rows(store, ids, sa.true())


def read_ended(store: Store, ids: Collection[str]) -> dict[str, ResultRow]:
    """The same of those that have ended, and were not forgotten."""
    t = tasks.c
    not_forgotten = sa.or_(t.result.is_(None), t.result != FORGOTTEN)
    return _rows(store, ids, sa.and_(t.outcome.is_not(None), t.outcome != TaskState.RUNNING, not_forgotten))


def _rows(store: Store, ids: Collection[str], where: sa.ColumnElement[bool]) -> dict[str, ResultRow]:
    found: dict[str, ResultRow] = {}
    ids = [one for one in ids if is_possible(one)]
    for start in range(0, len(ids), AT_ONCE):
        some = ids[start : start + AT_ONCE]
        query = sa.union_all(_of_tasks().where(tasks.c.id.in_(some), where), _of_revoked(some))
        rows = store.statement(lambda connection, query=query: connection.execute(query).all())  # type: ignore[misc]
        for row in sorted(rows, key=lambda row: int(row.is_task)):
            found[row.id] = _row(row)
    return found


def _of_tasks() -> sa.Select[Any]:
    t = tasks.c
    columns = (
        t.id,
        task_state,
        t.retries,
        t.result,
        t.meta,
        t.error,
        t.name,
        t.finished_at,
        t.abandoned,
        leases.c.token,
    )
    source = tasks.outerjoin(leases, leases.c.task_id == t.id)
    return sa.select(*columns, sa.literal(1).label("is_task")).select_from(source)


def _of_revoked(ids: Sequence[str]) -> sa.Select[Any]:
    """Ids that are revoked though no task has come for them yet."""
    c, no_bytes, no_number = revoked.c, sa.cast(sa.null(), sa.LargeBinary), sa.cast(sa.null(), sa.BigInteger)
    state, name = sa.literal(TaskState.CANCELLED), sa.literal("")
    columns = (c.value, state, sa.literal(0), no_bytes, no_bytes, c.reason, name, no_number, sa.literal(0), no_number)
    return sa.select(*columns, sa.literal(0)).where(c.kind == "", c.value.in_(ids))


def _row(row: Any) -> ResultRow:
    state = TaskState(row.state)
    return ResultRow(
        state=state,
        retries=row.retries,
        result=None if row.result is None else bytes(row.result),
        said=None if row.meta is None else _said(bytes(row.meta), row.token if state is TaskState.RUNNING else None),
        error=row.error,
        name=row.name,
        finished_at=row.finished_at,
        abandoned=bool(row.abandoned),
    )


def say(connection: Connection, task_id: str, token: int, document: bytes) -> None:
    """What the run under this token says of itself. The caller has locked its lease."""
    connection.execute(sa.update(tasks).where(tasks.c.id == task_id).values(meta=said_by(token, document)))


def said_by(token: int, document: bytes) -> bytes:
    return b"%d %b" % (token, document)


def _said(meta: bytes, by: int | None) -> bytes | None:
    token, _, document = meta.partition(b" ")
    return document if by is None or int(token) == by else None


def forget(connection: Connection, ids: Sequence[str]) -> None:
    """Drop what these tasks have left or said. The rows of durable tasks stay, and their keys hold."""
    t = tasks.c
    connection.execute(sa.delete(tasks).where(t.id.in_(ids), kept()))
    nothing = sa.case((t.outcome.is_not(None), FORGOTTEN), else_=t.result)
    connection.execute(sa.update(tasks).where(t.id.in_(ids)).values(meta=None, result=nothing))


def kept() -> sa.ColumnElement[bool]:
    """Is the row only the kept result of a task that is not durable?"""
    return tasks.c.max_losses == 0
