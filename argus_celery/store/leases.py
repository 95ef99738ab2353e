"""The lease protocol, in the statements that keep it.

A task that has not ended has one lease row. It says who may act for the task (``holder``), under which fencing
``token``, and until when (``eligible_at``, the database's clock). Nobody, the broker's queue and a worker are all
holders, so that a backlog, an eta, a back-off, a lost message, a flushed broker and a dead worker are one thing: a row
that is *due* (``eligible_at <= now``, not parked by ``paused`` or ``waits``).

**Dispatch** takes due rows and makes the queue their holder, with a new ``eligible_at`` that doubles at each repeat.
The token rises by one, unless the queue held the row already: then nobody was granted anything since, and the copy
that may still be in the broker stays good.

**Claim** makes a worker the holder and raises the token by one. It matches only the token that the message bears while
the queue is the holder, so of all copies of a message one is granted, once, and no stale copy ever is.

**Renew** moves ``eligible_at`` on. It, and every other write of a running task, names (task, token, holder): a run
whose lease has lapsed and was dispatched again finds no row, whatever its clock says.

**Release** gives a row back, **retry** gives it back with another message and due time, and an end deletes it. The
token then goes to ``tasks.fence``, so that it never falls.

Each function is one statement (two on MySQL, which has no UPDATE … RETURNING) and says in its first line what it
promises. Transactions, order and what follows are flow's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.records import NOBODY, QUEUE, Delivery, ProjectStatus
from argus_celery.store.engine import Store
from argus_celery.store.schema import leases, projects, queues, tasks

c = leases.c

PARKED = 2**52
"""When a row is due that waits for the message of its successor: not before that has come."""
LIVE = (ProjectStatus.OPEN, ProjectStatus.CLOSED)


@dataclass(frozen=True, slots=True)
class Lease:
    task_id: str
    project_id: int
    queue: str
    token: int
    holder: str
    started: bool
    dispatches: int
    expired: bool


@dataclass(frozen=True, slots=True)
class Granted:
    task_id: str
    token: int
    project_id: int
    ttl: int


@dataclass(frozen=True, slots=True)
class Level:
    """One (queue, priority) in which rows wait in the store, and when the first is due."""

    queue: str
    priority: int
    first: int


@dataclass(frozen=True, slots=True)
class Heads:
    """The first due instant of everything that could be dispatched."""

    now: int
    held: int | None
    """Of rows held by the queue or a worker."""
    levels: tuple[Level, ...]
    closed: bool = False
    """Is there a closed project, that may have drained?"""
    owed: bool = False
    """Is there an outcome that a foreign result backend or an errback is still owed?"""

    def due_levels(self) -> list[Level]:
        due = [level for level in self.levels if level.first <= self.now]
        return sorted(due, key=lambda level: (-level.priority, level.first))

    @property
    def any_due(self) -> bool:
        return bool(self.due_levels()) or (self.held is not None and self.held <= self.now)

    @property
    def next_due_ms(self) -> int | None:
        """Milliseconds until the next scheduled row is due; None where none is."""
        future = [level.first - self.now for level in self.levels if level.first > self.now]
        return min(future) if future else None


# --- what waits, and how much is out -----------------------------------------------------------------------------


def heads(store: Store, connection: Connection) -> Heads:
    """One statement whose cost follows the number of queues and priorities, not of rows: one index entry each."""
    level = queues.c
    first = (
        sa.select(c.eligible_at)
        .where(c.holder == NOBODY, c.paused == 0, c.waits == 0, c.queue == level.queue, c.priority == level.priority)
        .order_by(c.eligible_at)
        .limit(1)
        .scalar_subquery()
    )
    held = sa.select(sa.func.min(c.eligible_at)).where(c.holder > NOBODY, c.paused == 0, c.waits == 0).scalar_subquery()
    query = sa.select(level.queue, level.priority, first.label("first"), sa.literal(0).label("held"))
    closed = sa.select(projects.c.id).where(projects.c.status == ProjectStatus.CLOSED).limit(1).scalar_subquery()
    owed = sa.select(tasks.c.undelivered).where(tasks.c.undelivered > 0).limit(1).scalar_subquery()
    last = [
        sa.select(sa.literal("held"), sa.literal(0), held, store.now),
        sa.select(sa.literal("closed"), sa.literal(0), closed, sa.literal(-1)),
        sa.select(sa.literal("owed"), sa.literal(0), owed, sa.literal(-1)),
    ]
    rows = connection.execute(query.union_all(*last)).all()
    rest = {row.queue: row for row in rows if row.held}
    return Heads(
        now=rest["held"].held,
        held=rest["held"].first,
        levels=tuple(Level(r.queue, r.priority, r.first) for r in rows if not r.held and r.first is not None),
        closed=rest["closed"].first is not None,
        owed=rest["owed"].first is not None,
    )


def in_broker(connection: Connection) -> dict[str, int]:
    """How many messages the broker may hold, by queue."""
    query = sa.select(c.queue, sa.func.count()).where(c.holder == QUEUE).group_by(c.queue)
    return {row[0]: row[1] for row in connection.execute(query)}


# --- enqueue -----------------------------------------------------------------------------------------------------


def insert(store: Store, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """New rows. ``delay`` and ``expires_in`` are milliseconds from the database's now; ``due_at`` is an instant."""
    now = store.now
    statement = sa.insert(leases).values(
        eligible_at=sa.func.coalesce(
            sa.bindparam("due_at", type_=sa.BigInteger), now + sa.bindparam("delay", type_=sa.BigInteger)
        ),
        expires_at=sa.func.coalesce(
            sa.bindparam("expires_at_abs", type_=sa.BigInteger), now + sa.bindparam("expires_in", type_=sa.BigInteger)
        ),
        waits=0,
    )
    connection.execute(statement, list(rows))


# --- dispatch ----------------------------------------------------------------------------------------------------


def due_held(store: Store, connection: Connection, limit: int, *, workers_too: bool) -> list[Lease]:
    """Lock due rows whose holder (the queue or a worker) let them lapse, skipping rows locked by others."""
    holder = c.holder > NOBODY if workers_too else c.holder == QUEUE
    return _lock_due(store, connection, (holder,), (c.eligible_at,), limit)


def due_waiting(store: Store, connection: Connection, level: Level, limit: int) -> list[Lease]:
    """Lock due rows of one (queue, priority) that nobody holds, oldest first."""
    where = (c.holder == NOBODY, c.queue == level.queue, c.priority == level.priority)
    return _lock_due(store, connection, where, (c.eligible_at,), limit)


def due_of(store: Store, connection: Connection, ids: Collection[str]) -> list[Lease]:
    """Lock those of these rows that nobody holds and that are due: to dispatch one's own rows at once."""
    return _lock_due(store, connection, (c.holder == NOBODY, c.task_id.in_(ids)), (c.task_id,), len(ids))


def _lock_due(
    store: Store,
    connection: Connection,
    where: tuple[sa.ColumnElement[bool], ...],
    order: tuple[sa.ColumnElement[Any], ...],
    limit: int,
) -> list[Lease]:
    due = (c.paused == 0, c.waits == 0, c.eligible_at <= store.now)
    query = _select_lease(store).where(*where, *due).order_by(*order).limit(limit)
    return _leases(connection, store.dialect.for_update(query, skip_locked=True))


def _select_lease(store: Store) -> sa.Select[Any]:
    expired = sa.case((c.expires_at <= store.now, 1), else_=0).label("expired")
    return sa.select(c.task_id, c.project_id, c.queue, c.token, c.holder, c.started_at, c.dispatches, expired)


def _leases(connection: Connection, query: sa.Select[Any]) -> list[Lease]:
    return [
        Lease(
            r.task_id, r.project_id, r.queue, r.token, r.holder, r.started_at is not None, r.dispatches, bool(r.expired)
        )
        for r in connection.execute(query)
    ]


def hand_to_queue(store: Store, connection: Connection, rows: Sequence[Lease], ttl_ms: int, ttl_max_ms: int) -> None:
    """Make the queue the holder of these locked rows; the token rises unless it was the holder already."""
    for dispatches in sorted({row.dispatches for row in rows}):
        ids = [row.task_id for row in rows if row.dispatches == dispatches]
        connection.execute(
            sa.update(leases)
            .where(c.task_id.in_(ids))
            # In this order: MySQL assigns from left to right, and the token looks at the old holder.
            .ordered_values(
                (c.token, sa.case((c.holder == QUEUE, c.token), else_=c.token + 1)),
                (c.holder, QUEUE),
                (c.eligible_at, store.now + min(ttl_ms * 2 ** min(dispatches, 30), ttl_max_ms)),
                (c.dispatches, dispatches + 1),
                (c.claim, None),
                (c.acquired_at, None),
                (c.started_at, None),
            )
        )


def give_back(store: Store, connection: Connection, ids: Collection[tuple[str, int]], delay_ms: int) -> None:
    """Messages that surely did not leave: the rows wait in the store again, their back-off not doubled."""
    connection.execute(
        sa.update(leases)
        .where(_any_of(ids), _held_by(QUEUE))
        .values(holder=NOBODY, eligible_at=store.now + delay_ms, dispatches=0)
    )


def park(connection: Connection, ids: Collection[str]) -> None:
    """Rows of a paused project: out of the scheduler's sight, their due instant untouched."""
    connection.execute(sa.update(leases).where(c.task_id.in_(ids)).values(paused=1))


# --- claim, renew, give up ---------------------------------------------------------------------------------------


def grant(
    store: Store, connection: Connection, holder: str, mark: str, deliveries: Sequence[Delivery]
) -> list[Granted]:
    """Grant each delivery whose token is the row's while the queue holds it, in a live project that is not paused."""
    pairs = [(delivery.task_id, delivery.token) for delivery in deliveries]
    # A scalar, not EXISTS: joined, the planner may begin with the project and go through all of its leases.
    goes_on = sa.select(sa.literal(1)).where(
        projects.c.id == c.project_id, projects.c.paused_at.is_(None), projects.c.status.in_(LIVE)
    )
    now = store.now
    statement = (
        sa.update(leases)
        .where(_any_of(pairs), _held_by(QUEUE), c.paused == 0, goes_on.scalar_subquery() == 1)
        .where(sa.or_(c.expires_at.is_(None), c.expires_at > now))
        .values(
            token=c.token + 1,
            holder=holder,
            claim=mark,
            eligible_at=now + c.ttl,
            acquired_at=now,
            started_at=now,
            dispatches=0,
        )
    )
    if store.dialect.returning:
        rows = connection.execute(statement.returning(c.task_id, c.token, c.project_id, c.ttl))
        return [Granted(*row) for row in rows]
    connection.execute(statement)
    return granted_by(connection, holder, mark, [task_id for task_id, _ in pairs])


def granted_by(connection: Connection, holder: str, mark: str, ids: Collection[str]) -> list[Granted]:
    """What a claim call with this mark was granted: its answer may have been lost."""
    query = sa.select(c.task_id, c.token, c.project_id, c.ttl)
    rows = connection.execute(query.where(c.task_id.in_(ids), _held_by(holder), c.claim == mark))
    return [Granted(*row) for row in rows]


def renew(
    store: Store, connection: Connection, holder: str, claims: Collection[tuple[str, int]]
) -> set[tuple[str, int]]:
    """Move the lapse of these claims on, skipping rows that others have locked; returns those moved."""
    mine = (_any_of(claims), _held_by(holder))
    lockable = store.dialect.for_update(sa.select(c.task_id, c.token).where(*mine), skip_locked=True)
    move = sa.update(leases).values(eligible_at=store.now + c.ttl)
    if store.dialect.name == "sqlite":
        return {(row.task_id, row.token) for row in connection.execute(move.where(*mine).returning(c.task_id, c.token))}
    if store.dialect.returning:
        unlocked = lockable.cte("unlocked")
        moved = move.where(c.task_id == unlocked.c.task_id).returning(c.task_id, c.token)
        return {(row.task_id, row.token) for row in connection.execute(moved)}
    locked = {(row.task_id, row.token) for row in connection.execute(lockable)}
    if locked:
        connection.execute(move.where(c.task_id.in_([task_id for task_id, _ in locked])))
    return locked


def standing(connection: Connection, ids: Collection[str]) -> dict[str, tuple[int, str]]:
    """(token, holder) of these rows as committed."""
    rows = connection.execute(sa.select(c.task_id, c.token, c.holder).where(c.task_id.in_(ids)))
    return {row.task_id: (row.token, row.holder) for row in rows}


def lock_held(store: Store, connection: Connection, holder: str, claims: Collection[tuple[str, int]]) -> list[Lease]:
    """Lock the rows of these claims, waiting for others; only those still held come back."""
    query = _select_lease(store).where(_any_of(claims), _held_by(holder)).order_by(c.task_id)
    return _leases(connection, store.dialect.for_update(query))


def lock_parked(store: Store, connection: Connection, task_id: str) -> bool:
    """Lock the row of a task that was replaced and waits for its successor; False if it does not."""
    query = _select_lease(store).where(c.task_id == task_id, c.holder == NOBODY, c.eligible_at >= PARKED)
    return bool(_leases(connection, store.dialect.for_update(query)))


def extend(store: Store, connection: Connection, task_id: str, token: int, holder: str) -> bool:
    """Move one claim's lapse on; False if it is not held any more."""
    held = (c.task_id == task_id, c.token == token, _held_by(holder))
    return connection.execute(sa.update(leases).where(*held).values(eligible_at=store.now + c.ttl)).rowcount > 0


def hand_back(
    store: Store, connection: Connection, ids: Collection[str], delay_ms: int = 0, due_at: int | None = None
) -> None:
    """Nobody holds these locked rows any more; they are due after ``delay_ms``, or at an instant."""
    connection.execute(
        sa.update(leases)
        .where(c.task_id.in_(ids))
        .values(
            holder=NOBODY,
            claim=None,
            eligible_at=store.now + delay_ms if due_at is None else due_at,
            acquired_at=None,
            started_at=None,
            dispatches=0,
        )
    )


def requeue_as(
    store: Store,
    connection: Connection,
    task_id: str,
    queue: str,
    priority: int,
    expires_at: int | None,
    expires_in: int | None,
) -> None:
    """A retry or replace may name another queue and expiry."""
    values: dict[str, Any] = {"queue": queue, "priority": priority}
    if expires_at is not None or expires_in is not None:
        values["expires_at"] = expires_at if expires_in is None else store.now + expires_in
    connection.execute(sa.update(leases).where(c.task_id == task_id).values(**values))


def delete_all(connection: Connection, ids: Collection[str]) -> None:
    """End these locked rows."""
    connection.execute(sa.delete(leases).where(c.task_id.in_(ids)))


def lapse_all_of(store: Store, connection: Connection, holders: Collection[str]) -> int:
    """These holders are proven dead: their rows are due now."""
    where = (c.holder.in_(holders), c.eligible_at > store.now)
    return connection.execute(sa.update(leases).where(*where).values(eligible_at=store.now)).rowcount


def _held_by(holder: str) -> sa.ColumnElement[bool]:
    # Hidden from the planner: without statistics it would go through all rows of the holder to find a few by id.
    return sa.func.coalesce(c.holder, NOBODY) == holder


def _any_of(claims: Collection[tuple[str, int]]) -> sa.ColumnElement[bool]:
    # The plain id list is what every planner finds the primary key with.
    return sa.and_(
        c.task_id.in_([task_id for task_id, _ in claims]), sa.tuple_(c.task_id, c.token).in_([tuple(p) for p in claims])
    )


# --- steering ----------------------------------------------------------------------------------------------------


def pause_project(store: Store, connection: Connection, project_id: int) -> None:
    """Park every row of the project; what the queue held is due again when the project goes on."""
    queued = (c.project_id == project_id, c.holder == QUEUE)
    connection.execute(
        sa.update(leases).where(*queued).values(paused=1, holder=NOBODY, eligible_at=store.now, dispatches=0)
    )
    connection.execute(sa.update(leases).where(c.project_id == project_id, c.paused == 0).values(paused=1))


def resume_project(store: Store, connection: Connection, project_id: int) -> None:
    """Unpark every row. A row that a dispatch gave to the queue during the pause had its message refused: due now."""
    queued = (c.project_id == project_id, c.holder == QUEUE, c.paused == 1)
    connection.execute(sa.update(leases).where(*queued).values(eligible_at=store.now))
    connection.execute(sa.update(leases).where(c.project_id == project_id, c.paused == 1).values(paused=0))


def lock_not_running(store: Store, connection: Connection, project_id: int, limit: int) -> list[Lease]:
    """Lock rows of the project that no worker holds."""
    query = _select_lease(store).where(c.project_id == project_id, c.holder.in_((NOBODY, QUEUE)))
    return _leases(connection, store.dialect.for_update(query.order_by(c.task_id).limit(limit)))


def running_of(connection: Connection, project_id: int) -> list[tuple[str, int, str]]:
    """(task, token, holder) of the project's running tasks."""
    query = sa.select(c.task_id, c.token, c.holder).where(c.project_id == project_id, c.holder > QUEUE)
    return [tuple(row) for row in connection.execute(query)]
