"""Horizon: what is alive, and when it can go on. For a test that makes time pass, with few tasks in its store."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.records import NOBODY, QUEUE
from argus_celery.store import backlog
from argus_celery.store.engine import Store
from argus_celery.store.leases import PARKED
from argus_celery.store.schema import leases, tasks

c = leases.c


@dataclass(frozen=True, slots=True)
class Live:
    """A task that has not ended."""

    id: str
    name: str
    queue: str
    token: int
    holder: str
    eligible_at: int
    parked: bool
    """It waits for a resume, a parent, a limit or an event, not for an instant."""

    @property
    def is_held(self) -> bool:
        """By a worker."""
        return self.holder not in (NOBODY, QUEUE)


@dataclass(frozen=True, slots=True)
class Horizon:
    now: int
    alive: tuple[Live, ...]
    owed: bool
    limit_due: int | None
    """When a limit lets the next of its line in."""

    @property
    def has_ended(self) -> bool:
        return not self.alive and not self.owed

    @property
    def is_busy(self) -> bool:
        """A worker holds something, or a sweep will find something at once."""
        waiting = (one for one in self.alive if one.holder == NOBODY and not one.parked)
        return any(one.is_held for one in self.alive) or any(one.eligible_at <= self.now for one in waiting)

    @property
    def soonest(self) -> int | None:
        """Milliseconds until something becomes due by time alone, at least 0; None where nothing does."""
        instants = [one.eligible_at for one in self.alive if not one.parked]
        instants += [] if self.limit_due is None else [self.limit_due]
        return max(0, min(instants) - self.now) if instants else None


def horizon(store: Store) -> Horizon:
    return store.read(lambda connection: _read(store, connection))


def _read(store: Store, connection: Connection) -> Horizon:
    heads = backlog.heads(store, connection)
    parked = sa.or_(c.paused != 0, c.waits != 0, c.eligible_at >= PARKED).label("parked")
    query = sa.select(c.task_id, tasks.c.name, c.queue, c.token, c.holder, c.eligible_at, parked)
    query = query.join_from(leases, tasks, tasks.c.id == c.task_id).order_by(c.task_id)
    rows = connection.execute(query).all()
    alive = tuple(
        Live(row.task_id, row.name, row.queue, row.token, row.holder, row.eligible_at, bool(row.parked)) for row in rows
    )
    return Horizon(heads.now, alive, heads.owed, heads.limit)
