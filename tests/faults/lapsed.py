"""Rows whose holder is gone, made through the flow: claimed by a worker that never was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import sqlalchemy as sa

if TYPE_CHECKING:
    from tests.faults.bench import Bench

DEAD = "wdead"


def hold_by_a_dead_worker(bench: Bench, tasks: Sequence[str]) -> None:
    from argus_celery.flow.claim import claim
    from argus_celery.records import Delivery

    granted = claim(bench.runtime, DEAD, [Delivery(task, 1) for task in tasks])
    assert None not in granted


def due_count(bench: Bench) -> int:
    from argus_celery.store.schema import leases

    query = sa.select(sa.func.count()).where(leases.c.holder == DEAD, leases.c.eligible_at <= bench.store.now)
    with bench.store.engine.connect() as connection:
        return int(connection.execute(query).scalar_one())
