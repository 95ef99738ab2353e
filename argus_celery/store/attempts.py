"""Rows of attempts: one per run, appended when it ends."""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.records import AttemptOutcome
from argus_celery.store.engine import Store
from argus_celery.store.schema import attempts, leases


def append(
    store: Store, connection: Connection, ids: Collection[str], outcome: AttemptOutcome, detail: str | None = None
) -> None:
    """Append an attempt for each of these leases as it stands; before the lease is changed or deleted."""
    lease = leases.c
    finished = (store.now, sa.literal(str(outcome)), sa.literal(detail, sa.Text()))
    source = sa.select(lease.task_id, lease.token, lease.holder, lease.started_at, *finished)
    columns = ["task_id", "token", "holder", "started_at", "finished_at", "outcome", "detail"]
    connection.execute(sa.insert(attempts).from_select(columns, source.where(lease.task_id.in_(ids))))


def ended_so(connection: Connection, task_id: str, token: int, outcome: AttemptOutcome) -> bool:
    """Did the run under this token end so?"""
    c = attempts.c
    query = sa.select(c.task_id).where(c.task_id == task_id, c.token == token, c.outcome == outcome)
    return connection.execute(query).first() is not None


def ended_by_themselves(connection: Connection, claims: Collection[tuple[str, int]]) -> set[tuple[str, int]]:
    """Those of these (task, token) runs that have ended and were not lost."""
    c = attempts.c
    query = sa.select(c.task_id, c.token).where(
        c.task_id.in_([task_id for task_id, _ in claims]),
        sa.tuple_(c.task_id, c.token).in_(list(claims)),
        c.outcome != AttemptOutcome.LOST,
    )
    return {(row.task_id, row.token) for row in connection.execute(query)}
