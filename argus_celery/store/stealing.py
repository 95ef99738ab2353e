"""Rows whose message was sent and has not begun: fetched by a worker that is busy or dead, or lost by the broker."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.records import QUEUE
from argus_celery.store.engine import Store
from argus_celery.store.leases import is_any_of
from argus_celery.store.schema import leases, tasks

c = leases.c


@dataclass(frozen=True, slots=True)
class Sent:
    task_id: str
    token: int
    name: str
    dispatches: int
    lapses_in: int
    """Milliseconds until any dispatch would send it again."""


def sent(store: Store, connection: Connection, queues: Collection[str], limit: int) -> list[Sent]:
    """Those of these queues that were sent longest ago. What is read is bounded by the dispatch window."""
    columns = (c.task_id, c.token, tasks.c.name, c.dispatches, (c.eligible_at - store.now).label("lapses_in"))
    query = sa.select(*columns).select_from(leases.join(tasks, tasks.c.id == c.task_id))
    here = (c.holder == QUEUE, c.paused == 0, c.waits == 0, c.queue.in_(sorted(queues)))
    rows = connection.execute(query.where(*here).order_by(c.eligible_at).limit(limit))
    return [Sent(r.task_id, r.token, r.name, r.dispatches, r.lapses_in) for r in rows]


def lapse(store: Store, connection: Connection, rows: Collection[Sent]) -> int:
    """They are due now, as far as they are where they were."""
    where = (is_any_of([(row.task_id, row.token) for row in rows]), c.holder == QUEUE, c.eligible_at > store.now)
    return connection.execute(sa.update(leases).where(*where).values(eligible_at=store.now)).rowcount
