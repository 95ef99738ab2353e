"""What is going on in the whole store now: its live projects, its queues, its workers. Nothing here locks or writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.records import NOBODY, QUEUE, HolderFacts, ProjectInfo, ProjectStatus
from argus_celery.store.engine import Store
from argus_celery.store.reports import by_most_alive, project_infos
from argus_celery.store.schema import holders, leases, projects, queues

c = leases.c


@dataclass(frozen=True, slots=True)
class QueueLoad:
    """One queue: what waits in the store, what the broker may hold, what runs."""

    queue: str
    waiting: int
    due: int
    """Of those that wait: what could be dispatched now."""
    queued: int
    running: int
    oldest_due_at: int | None
    """Since when the first of ``due`` could have been dispatched."""


@dataclass(frozen=True, slots=True)
class WorkerLoad:
    """One worker incarnation that holds tasks, or was seen of late and has not signed off."""

    id: str
    node: str
    host: str
    pid: int
    running: int
    started_at: int
    seen_at: int
    """Its last sign of life: it was seen, or renewed what it holds."""
    died: bool = False
    """It surely is not there any more; what it holds is still to be handed on."""


@dataclass(frozen=True, slots=True)
class Board:
    now: int
    projects: tuple[ProjectInfo, ...]
    queues: tuple[QueueLoad, ...]
    workers: tuple[WorkerLoad, ...]


def board(
    store: Store, is_dead: Callable[[HolderFacts], bool] = lambda _: False, most: int = 100, unseen_ms: int = 45_000
) -> Board:
    """Up to ``most`` live projects and workers each, those with the most work first. It counts every lease.

    A worker that ``is_dead`` says to be gone is on it while it holds something.
    """

    def read(connection: Connection) -> Board:
        live = projects.c.status.in_((ProjectStatus.OPEN, ProjectStatus.CLOSED))
        return Board(
            now=int(connection.execute(sa.select(store.now)).scalar_one()),
            projects=tuple(project_infos(connection, live, most, by_most_alive())),
            queues=tuple(_queues(store, connection)),
            workers=tuple(_workers(store, connection, is_dead, most, unseen_ms)),
        )

    return store.read(read)


def _queues(store: Store, connection: Connection) -> list[QueueLoad]:
    waits = c.holder == NOBODY
    due = sa.and_(waits, c.paused == 0, c.waits == 0, c.eligible_at <= store.now)
    which = {"waiting": waits, "due": due, "queued": c.holder == QUEUE, "running": c.holder > QUEUE}
    counted = [sa.func.count(sa.case((condition, 1))).label(name) for name, condition in which.items()]
    oldest = sa.func.min(sa.case((due, c.eligible_at))).label("oldest_due_at")
    query = sa.select(c.queue, *counted, oldest).group_by(c.queue).order_by(c.queue)
    return [QueueLoad(**row._mapping) for row in connection.execute(query)]


def _workers(
    store: Store, connection: Connection, is_dead: Callable[[HolderFacts], bool], most: int, unseen_ms: int
) -> list[WorkerLoad]:
    running = sa.select(sa.func.count()).where(c.holder == holders.c.id).scalar_subquery()
    renewed = sa.select(sa.func.max(c.eligible_at - c.ttl)).where(c.holder == holders.c.id).scalar_subquery()
    held = sa.select(holders, running.label("running"), renewed.label("renewed_at")).subquery()
    lately = sa.and_(held.c.left_at.is_(None), held.c.seen_at > store.now - unseen_ms)
    query = sa.select(held).where(sa.or_(held.c.running > 0, lately))
    loads = [_worker(row, is_dead) for row in connection.execute(query.order_by(held.c.running.desc(), held.c.node))]
    return [one for one in loads if one.running or not one.died][:most]


def _worker(row: Any, is_dead: Callable[[HolderFacts], bool]) -> WorkerLoad:
    facts = HolderFacts(**{name: getattr(row, name) for name in HolderFacts.__dataclass_fields__})
    seen_at = max(row.seen_at, row.renewed_at or 0)
    return WorkerLoad(row.id, row.node, row.host, row.pid, row.running, row.started_at, seen_at, is_dead(facts))


def queue_names(store: Store) -> list[str]:
    """Every queue that tasks were ever recorded under."""
    names = sa.select(queues.c.queue).distinct().order_by(queues.c.queue)
    return store.statement(lambda connection: list(connection.execute(names).scalars()))
