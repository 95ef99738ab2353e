"""New tasks and their leases, row by row: in one statement each where the database writes two tables in one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.store import leases, tasks
from argus_celery.store.engine import Store
from argus_celery.store.hot import Hot

Rows = Sequence[Mapping[str, Any]]


def enter(store: Store, connection: Connection, of_tasks: Rows, of_leases: Rows) -> None:
    """``tasks.insert`` and ``leases.insert`` of the same tasks in the same order."""
    if not store.dialect.writes_in_with:
        tasks.insert(store, connection, of_tasks)
        leases.insert(store, connection, of_leases)
        return
    pairs = zip(tasks.as_inserted(of_tasks), leases.as_inserted(of_leases), strict=True)
    _enter.run_all(store, connection, [{**task, **lease} for task, lease in pairs])


@Hot
def _enter(store: Store) -> sa.Insert:
    return leases.inserted(store).add_cte(tasks.inserted(store).cte("entered"))
