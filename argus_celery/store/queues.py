"""Rows of queues: every (queue, priority) that tasks were ever recorded under."""

from __future__ import annotations

from collections.abc import Collection

from argus_celery.store.engine import Store
from argus_celery.store.schema import queues


def ensure(store: Store, pairs: Collection[tuple[str, int]]) -> None:
    """Note these (queue, priority) pairs, committed, before the first lease under them is."""
    rows = [{"queue": queue, "priority": priority} for queue, priority in sorted(pairs)]
    store.transaction(lambda connection: store.dialect.insert_new(connection, queues, rows))
