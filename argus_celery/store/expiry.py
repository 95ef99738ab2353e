"""Results that have been kept for long enough."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.records import TaskState
from argus_celery.store.engine import Store
from argus_celery.store.results import FORGOTTEN, kept
from argus_celery.store.schema import tasks


def old_results(
    store: Store, connection: Connection, age_ms: int, age_ms_of_failures: int | None, after: str, limit: int
) -> list[str]:
    """Ids behind ``after``, in order, of ended tasks whose result is older, and of what is kept of others."""
    t = tasks.c
    since = sa.func.coalesce(t.finished_at, t.created_at)
    failed = t.outcome == TaskState.FAILED
    old = sa.and_(sa.not_(failed), since <= store.now - age_ms)
    if age_ms_of_failures is not None:
        old = sa.or_(old, sa.and_(failed, since <= store.now - age_ms_of_failures))
    there = sa.or_(kept(), sa.and_(t.result.is_not(None), t.result != FORGOTTEN))
    query = sa.select(t.id).where(t.id > after, t.outcome.is_not(None), t.undelivered == 0, old, there)
    return list(connection.execute(query.order_by(t.id).limit(limit)).scalars())
