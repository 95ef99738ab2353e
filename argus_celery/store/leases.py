"""The lease protocol, in the statements that keep it.

A task that has not ended has one lease row. It says who may act for the task (``holder``), under which fencing
``token``, and until when (``eligible_at``, the database's clock). Nobody, the broker's queue and a worker are all
holders, so that a backlog, an eta, a back-off, a lost message, a flushed broker and a dead worker are one thing: a row
that is *due* (``eligible_at <= now``, not parked by ``paused`` or ``waits``). A row that somebody holds lapses all the
same: ``paused`` says of it only that it is not to go out again.

**Dispatch** takes due rows and makes the queue their holder, with a new ``eligible_at`` that doubles at each repeat.
The token rises by one, unless the queue held the row already: then nobody was granted anything since, and the copy
that may still be in the broker stays good.

**Claim** makes a worker the holder and raises the token by one. It matches only the token that the message bears while
the queue is the holder, so of all copies of a message one is granted, once, and no stale copy ever is.

**Renew** moves ``eligible_at`` on. It, and every other write of a running task, names (task, token, holder): a run
whose lease has lapsed and was dispatched again finds no row, whatever its clock says. A run that has to show progress
is renewed no further than ``progress_until``; **progress** moves that on.

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

from argus_celery.records import NOBODY, QUEUE, Delivery, NewTask, ProjectStatus
from argus_celery.store import ended
from argus_celery.store.backlog import Level
from argus_celery.store.engine import Store
from argus_celery.store.hot import Hot, as_new, filled, listed, new, size
from argus_celery.store.revoked import unmarked
from argus_celery.store.schema import leases, projects, tasks, waiting_for_nothing

c = leases.c

PARKED = 2**52
"""When a row is due that waits for the message of its successor: not before that has come."""
DIED = "died"
"""``claim`` of a row whose worker is known to have died; the marks of claim calls are longer."""
_PARKED = (c.holder == NOBODY, c.eligible_at >= PARKED)
_FREE = (c.holder == NOBODY, c.paused == 0, c.waits == 0)
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
    follows: bool = False
    """A chain or a chord is to be told if the task ends without a run."""
    leads: bool = False
    """Others come after it (``argus_edges``), and are to be told of its end."""
    waits: int = 0
    """How many parents are not met yet."""
    limited: bool = False
    """It is under limits: ``flow.admit`` decides whether it goes out."""
    alarms: bool = False
    """Its project is to be paused or cancelled if it fails for good."""
    stalled: int | None = None
    """For so many milliseconds its run was to show progress, and has shown none."""
    died: bool = False
    """Its worker is known to have died."""


@dataclass(frozen=True, slots=True)
class Granted:
    task_id: str
    token: int
    project_id: int
    ttl: int


# --- enqueue -----------------------------------------------------------------------------------------------------


def insert(store: Store, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """New rows. ``delay`` and ``expires_in`` are milliseconds from the database's now; ``due_at`` is an instant.

    ``waits`` and ``leads`` may be left out.
    """
    _insert.run_all(store, connection, as_inserted(rows))


def as_inserted(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The values of ``inserted``."""
    rest = {"waits": 0, "leads": 0, "limited": 0}
    return [as_new("lease_", {**rest, **row, "queued": int(row["holder"] == QUEUE)}) for row in rows]


_GIVEN = ("task_id", "project_id", "queue", "priority", "token", "holder", "ttl", "waits", "paused", "dispatches")
_MARKS = ("follows", "leads", "unique_key", "limited")


def inserted(store: Store) -> sa.Insert:
    """The statement of ``insert``, for one row."""

    def given(name: str) -> sa.BindParameter[int]:
        return sa.bindparam(f"lease_{name}", type_=sa.BigInteger)

    now = store.now
    due = sa.func.coalesce(given("due_at"), now + given("delay"))
    expiry = sa.func.coalesce(given("expires_at_abs"), now + given("expires_in"))
    first = sa.case((sa.and_(given("queued") == 1, expiry < due), expiry), else_=due)
    return sa.insert(leases).values(eligible_at=first, expires_at=expiry, **new(leases, "lease_", [*_GIVEN, *_MARKS]))


_insert = Hot(inserted)


def alive_of(connection: Connection, marks: Collection[str]) -> dict[str, str]:
    """The task that lives of each of these kinds (``unique_key``), where one does."""
    query = sa.select(c.unique_key, c.task_id).where(c.unique_key.in_(marks))
    return {row.unique_key: row.task_id for row in connection.execute(query)}


# --- dispatch ----------------------------------------------------------------------------------------------------


def due_held(store: Store, connection: Connection, limit: int, *, workers_too: bool) -> list[Lease]:
    """Lock due rows whose holder (the queue or a worker) let them lapse, skipping rows locked by others."""
    holder = c.holder > NOBODY if workers_too else c.holder == QUEUE
    return _lock_due(store, connection, (holder, c.waits == 0), (c.eligible_at,), limit)


def due_waiting(store: Store, connection: Connection, level: Level, limit: int) -> list[Lease]:
    """Lock due rows of one (queue, priority) that nobody holds, oldest first."""
    here = (*_FREE, c.queue == level.queue, c.priority == level.priority)
    return _lock_due(store, connection, here, (c.eligible_at,), limit)


def lock_due_of_project(store: Store, connection: Connection, level: Level, project_id: int, limit: int) -> list[Lease]:
    """The same of one project."""
    here = (*waiting_for_nothing(), c.queue == level.queue, c.priority == level.priority, c.project_id == project_id)
    return _lock_due(store, connection, here, (c.eligible_at,), limit)


def due_of(store: Store, connection: Connection, ids: Collection[str]) -> list[Lease]:
    """Lock those of these rows that nobody holds and that are due: to dispatch one's own rows at once."""
    return _lock_due(store, connection, (*_FREE, c.task_id.in_(ids)), (c.task_id,), len(ids))


def _lock_due(
    store: Store,
    connection: Connection,
    where: tuple[sa.ColumnElement[bool], ...],
    order: tuple[sa.ColumnElement[Any], ...],
    limit: int,
) -> list[Lease]:
    query = select_lease(store).where(*where, c.eligible_at <= store.now).order_by(*order).limit(limit)
    return read(connection, store.dialect.for_update(query, skip_locked=True))


def select_lease(store: Store) -> sa.Select[Any]:
    expired = sa.case((c.expires_at <= store.now, 1), else_=0).label("expired")
    up_to_it = sa.and_(c.progress_until <= store.now, c.eligible_at == c.progress_until)
    stalled = sa.case((up_to_it, c.progress_timeout)).label("stalled")
    columns = (c.task_id, c.project_id, c.queue, c.token, c.holder, c.started_at, c.dispatches, c.follows)
    died = sa.case((c.claim == DIED, 1), else_=0).label("died")
    return sa.select(*columns, c.leads, c.waits, c.limited, expired, _reacts(), stalled, died)


def _reacts() -> sa.Label[Any]:
    # A scalar, in the statement that reads the row anyway: who fails in a project without a policy pays no look.
    reacts = sa.select(sa.literal(1)).where(projects.c.id == c.project_id, projects.c.policy.is_not(None))
    return reacts.correlate(leases).scalar_subquery().label("alarms")


def read(connection: Connection, query: sa.Select[Any]) -> list[Lease]:
    return [_lease(row) for row in connection.execute(query)]


def _lease(found: Sequence[Any]) -> Lease:
    id_, project_id, queue, token, holder, started_at, dispatches, follows, leads, waits = found[:10]
    limited, expired, alarms, stalled, died = found[10:15]
    return Lease(
        id_,
        project_id,
        queue,
        token,
        holder,
        started_at is not None,
        dispatches,
        bool(expired),
        bool(follows),
        bool(leads),
        waits,
        bool(limited),
        bool(alarms),
        stalled,
        bool(died),
    )


def hand_to_queue(store: Store, connection: Connection, rows: Sequence[Lease], ttl_ms: int, ttl_max_ms: int) -> None:
    """Make the queue the holder of these locked rows; the token rises unless it was the holder already.

    What expires in the queue is due then, so that the next dispatch ends it.
    """
    for dispatches in sorted({row.dispatches for row in rows}):
        ids = [row.task_id for row in rows if row.dispatches == dispatches]
        lapses = store.now + min(ttl_ms * 2 ** min(dispatches, 30), ttl_max_ms)
        connection.execute(
            sa.update(leases)
            .where(c.task_id.in_(ids))
            # In this order: MySQL assigns from left to right, and the token looks at the old holder.
            .ordered_values(
                (c.token, sa.case((c.holder == QUEUE, c.token), else_=c.token + 1)),
                (c.holder, QUEUE),
                (c.eligible_at, sa.case((c.expires_at < lapses, c.expires_at), else_=lapses)),
                (c.dispatches, dispatches + 1),
                (c.claim, None),
                (c.acquired_at, None),
                (c.started_at, None),
                (c.progress_until, None),
            )
        )


def give_back(store: Store, connection: Connection, ids: Collection[tuple[str, int]], delay_ms: int) -> None:
    """Messages that surely did not leave: the rows wait in the store again, their back-off not doubled."""
    connection.execute(
        sa.update(leases)
        .where(is_any_of(ids), _held_by(QUEUE))
        .values(holder=NOBODY, eligible_at=store.now + delay_ms, dispatches=0)
    )


def note_unknown(store: Store, connection: Connection, task_id: str, token: int) -> tuple[int, Lease] | None:
    """A worker without the task's code was met. For how many milliseconds only such were, and the row as it stands.

    None: it is not queued so.
    """
    queued = (c.task_id == task_id, c.token == token, _held_by(QUEUE))
    since = sa.func.coalesce(c.unknown_since, store.now)
    if not connection.execute(sa.update(leases).where(*queued).values(unknown_since=since)).rowcount:
        return None
    query = select_lease(store).add_columns((store.now - c.unknown_since).label("ms")).where(c.task_id == task_id)
    row = connection.execute(query).one()
    return int(row.ms), _lease(row)


def park(connection: Connection, ids: Collection[str]) -> None:
    """Rows of a paused project: out of the scheduler's sight, their due instant untouched."""
    connection.execute(sa.update(leases).where(c.task_id.in_(ids)).values(paused=1))


# --- what comes after ------------------------------------------------------------------------------------------


def lead(connection: Connection, ids: Collection[str]) -> None:
    """Others come after these locked rows from now on."""
    connection.execute(sa.update(leases).where(c.task_id.in_(ids), c.leads == 0).values(leads=1))


def wait_more(store: Store, connection: Connection, task_id: str, more: int) -> None:
    """A locked row that no worker holds waits for so many parents more; a message of it in the broker is stale now."""
    row = sa.update(leases).where(c.task_id == task_id)
    # In this order: MySQL assigns from left to right, and what is due looks at the old holder.
    due = sa.case((c.holder == QUEUE, store.now), else_=c.eligible_at)
    values = ((c.waits, c.waits + more), (c.eligible_at, due), (c.holder, NOBODY), (c.dispatches, 0))
    connection.execute(row.ordered_values(*values))


def wait_less(connection: Connection, ids: Collection[str], met: int) -> None:
    """So many parents of each of these locked rows are met. Those of a cancelled project wait for none any more."""
    fewer = sa.case((c.waits > met, c.waits - met), else_=0)
    connection.execute(sa.update(leases).where(c.task_id.in_(ids)).values(waits=fewer))


def wait_for(connection: Connection, ids: Collection[str], waits: int) -> None:
    """These locked rows wait for so many parents, whatever they said."""
    connection.execute(sa.update(leases).where(c.task_id.in_(ids)).values(waits=waits))


# --- claim, renew, give up ---------------------------------------------------------------------------------------


def grant(
    store: Store,
    connection: Connection,
    holder: str,
    mark: str,
    deliveries: Sequence[Delivery],
    progress_timeout_ms: int | None = None,
) -> list[Granted]:
    """Grant each delivery whose token is the row's while the queue holds it, in a live project that is not paused.

    One whose id was revoked before it came is not granted.
    """
    pairs = [(delivery.task_id, delivery.token) for delivery in deliveries]
    if not pairs:
        return []
    values = {"me": holder, "mark": mark, "progress": progress_timeout_ms, **_filled(pairs)}
    if store.dialect.returning:
        return [Granted(*one) for one in _grant.rows(store, connection, values, size(len(pairs)))]
    _grant.run(store, connection, values, size(len(pairs)))
    return granted_by(connection, holder, mark, [task_id for task_id, _ in pairs])


@Hot
def _grant(store: Store, many: int) -> sa.Update | sa.sql.dml.ReturningUpdate[Any]:
    # A scalar, not EXISTS: joined, the planner may begin with the project and go through all of its leases.
    live = sa.or_(*(projects.c.status == sa.literal_column(f"'{status}'") for status in LIVE))
    goes_on = sa.select(sa.literal(1)).where(projects.c.id == c.project_id, projects.c.paused_at.is_(None), live)
    now, progress = store.now, sa.bindparam("progress", type_=sa.BigInteger)
    statement = (
        sa.update(leases)
        .where(_among(many), _held_by(QUEUE), c.paused == 0, goes_on.scalar_subquery() == 1)
        .where(sa.or_(c.expires_at.is_(None), c.expires_at > now), unmarked(c.task_id))
        .values(
            token=c.token + 1,
            holder=sa.bindparam("me"),
            claim=sa.bindparam("mark"),
            eligible_at=now + c.ttl,
            acquired_at=now,
            started_at=now,
            dispatches=0,
            unknown_since=None,
            progress_timeout=progress,
            progress_until=now + progress,
        )
    )
    return statement.returning(c.task_id, c.token, c.project_id, c.ttl) if store.dialect.returning else statement


def granted_by(connection: Connection, holder: str, mark: str, ids: Collection[str]) -> list[Granted]:
    """What a claim call with this mark was granted: its answer may have been lost."""
    query = sa.select(c.task_id, c.token, c.project_id, c.ttl)
    rows = connection.execute(query.where(c.task_id.in_(ids), _held_by(holder), c.claim == mark))
    return [Granted(*row) for row in rows]


@dataclass(frozen=True, slots=True)
class Renewed:
    """Claims (task, token) whose row was there and not locked, by what is known of them."""

    held: set[tuple[str, int]]
    cancelled: set[tuple[str, int]]
    """Of a project that was cancelled."""
    stalled: set[tuple[str, int]]
    """They showed no progress for as long as they have for it, and are due."""


def renew(
    store: Store, connection: Connection, holder: str, claims: Collection[tuple[str, int]], *, progress: bool = False
) -> Renewed:
    """Move the lapse of these claims on, skipping rows that others have locked; ``progress``: and how far it may be."""
    mine = (is_any_of(claims), _held_by(holder))
    at_its_end = projects.c.status == ProjectStatus.CANCELLED
    cancelled = (
        sa.select(sa.literal(1)).where(projects.c.id == c.project_id, at_its_end).correlate(leases).scalar_subquery()
    )
    wanted = (c.task_id, c.token, cancelled.label("cancelled"), _stalled(store).label("stalled"))
    lockable = store.dialect.for_update(sa.select(*wanted).where(*mine), skip_locked=True)
    move = sa.update(leases).values(_moved_on(store, progress))
    if store.dialect.name == "sqlite":
        rows = connection.execute(move.where(*mine).returning(*wanted)).all()
    elif store.dialect.returning:
        unlocked = lockable.cte("unlocked")
        moved = move.where(c.task_id == unlocked.c.task_id)
        rows = connection.execute(moved.returning(c.task_id, c.token, unlocked.c.cancelled, unlocked.c.stalled)).all()
    else:
        rows = connection.execute(lockable).all()
        if rows:
            connection.execute(move.where(c.task_id.in_([row.task_id for row in rows])))
    return Renewed(
        held={(row.task_id, row.token) for row in rows},
        cancelled={(row.task_id, row.token) for row in rows if row.cancelled},
        stalled={(row.task_id, row.token) for row in rows if row.stalled and not progress},
    )


def _moved_on(store: Store, progress: bool) -> dict[str, Any]:
    """A TTL from now, but no further than the run is to have shown progress by."""
    now = store.now
    until = now + c.progress_timeout if progress else c.progress_until
    moved = {"eligible_at": sa.case((until < now + c.ttl, until), else_=now + c.ttl)}
    return {**moved, "progress_until": until} if progress else moved


def _stalled(store: Store) -> sa.ColumnElement[int]:
    return sa.case((c.progress_until <= store.now, 1), else_=0)


def standing(connection: Connection, ids: Collection[str]) -> dict[str, tuple[int, str]]:
    """(token, holder) of these rows as committed."""
    rows = connection.execute(sa.select(c.task_id, c.token, c.holder).where(c.task_id.in_(ids)))
    return {row.task_id: (row.token, row.holder) for row in rows}


def stalled(store: Store, connection: Connection, holder: str, claims: Collection[tuple[str, int]]) -> set[str]:
    """The tasks of those of these claims that are held and have shown no progress in time, locked or not."""
    late = (is_any_of(claims), _held_by(holder), c.progress_until <= store.now)
    return set(connection.execute(sa.select(c.task_id).where(*late)).scalars())


def lock_held(store: Store, connection: Connection, holder: str, claims: Collection[tuple[str, int]]) -> list[Lease]:
    """Lock the rows of these claims, waiting for others; only those still held come back."""
    if not claims:
        return []
    values = {"me": holder, **_filled(claims)}
    return [_lease(one) for one in _lock_held.rows(store, connection, values, size(len(claims)))]


@Hot
def _lock_held(store: Store, many: int) -> sa.Select[Any]:
    query = select_lease(store).where(_among(many), _held_by(sa.bindparam("me"))).order_by(c.task_id)
    return store.dialect.for_update(query)


def lock_all(store: Store, connection: Connection, ids: Collection[str]) -> list[Lease]:
    """Lock the rows of these tasks, whoever holds them."""
    query = select_lease(store).where(c.task_id.in_(ids)).order_by(c.task_id)
    return read(connection, store.dialect.for_update(query))


def parked(connection: Connection, ids: Collection[str]) -> list[str]:
    """Those of these tasks that were replaced and wait for their successors."""
    return list(connection.execute(sa.select(c.task_id).where(c.task_id.in_(ids), *_PARKED)).scalars())


def lock_parked(store: Store, connection: Connection, ids: Collection[str]) -> list[Lease]:
    """Lock those rows of these tasks that were replaced and wait for their successors."""
    query = select_lease(store).where(c.task_id.in_(ids), *_PARKED).order_by(c.task_id)
    return read(connection, store.dialect.for_update(query))


def extend(store: Store, connection: Connection, task_id: str, token: int, holder: str) -> bool:
    """Move one claim's lapse on, which is progress; False if it is not held any more."""
    held = is_claimed_by(task_id, token, holder)
    return connection.execute(sa.update(leases).where(*held).values(_moved_on(store, progress=True))).rowcount > 0


def fence(store: Store, connection: Connection, task_id: str, token: int, holder: str) -> bool:
    """Lock the row of a claim for the transaction of somebody else; False if it is not held any more."""
    if not store.dialect.one_writer:
        return extend(store, connection, task_id, token, holder)
    # Who has written is the only writer already; who has not must not become it, and has nothing to commit.
    held = (c.task_id == task_id, c.token == token, _held_by(holder))
    return connection.execute(sa.select(c.task_id).where(*held)).first() is not None


def hand_back(
    store: Store,
    connection: Connection,
    ids: Collection[str],
    delay_ms: int = 0,
    due_at: int | None = None,
    *,
    begun: bool = False,
) -> None:
    """Nobody holds these locked rows any more; they are due after ``delay_ms``, or at an instant.

    ``begun``: their work is half done, and they do not expire any more.
    """
    expiry = {"expires_at": None} if begun else {}
    connection.execute(
        sa.update(leases)
        .where(c.task_id.in_(ids))
        .values(
            **expiry,
            holder=NOBODY,
            claim=None,
            eligible_at=store.now + delay_ms if due_at is None else due_at,
            acquired_at=None,
            started_at=None,
            dispatches=0,
            progress_until=None,
        )
    )


def put_back(connection: Connection, ids: Collection[str]) -> None:
    """Nobody holds these locked rows any more: they are due in the place they had."""
    values = {"holder": NOBODY, "claim": None, "acquired_at": None, "started_at": None, "dispatches": 0}
    connection.execute(sa.update(leases).where(c.task_id.in_(ids)).values(eligible_at=came_at(), **values))


def came_at() -> sa.ScalarSelect[int]:
    """What was handed out was due before what still waits: it comes first again."""
    return sa.select(tasks.c.created_at).where(tasks.c.id == c.task_id).scalar_subquery()


def wake(store: Store, connection: Connection, ids: Collection[str]) -> None:
    """These locked rows, which nobody holds, are due now."""
    connection.execute(sa.update(leases).where(c.task_id.in_(ids)).values(eligible_at=store.now))


def requeue_as(store: Store, connection: Connection, task: NewTask) -> None:
    """A retry or replace may name another queue and expiry, and have something else behind it."""
    values: dict[str, Any] = {"queue": task.message.queue, "priority": task.priority, "follows": int(task.follows)}
    if not task.expires_as_before:
        in_ms = task.expires_in_ms
        values["expires_at"] = task.expires_at if in_ms is None else store.now + in_ms
    connection.execute(sa.update(leases).where(c.task_id == task.id).values(**values))


def delete_all(connection: Connection, ids: Collection[str]) -> None:
    """End these locked rows."""
    connection.execute(sa.delete(leases).where(c.task_id.in_(ids)))


def finish_all(store: Store, connection: Connection, ids: Collection[str]) -> bool:
    """End these locked rows, by runs; does a process wait for ends, and is to be told of these after the commit?"""
    values = filled("id", ids)
    if store.dialect_name != "postgresql":
        _finish.run(store, connection, values, size(len(ids)))
        return False
    ((awaited,),) = _finish.rows(store, connection, values, size(len(ids)))
    return bool(awaited)


@Hot
def _finish(store: Store, many: int) -> sa.Delete | sa.Select[Any]:
    gone = sa.delete(leases).where(c.task_id.in_(listed("id", many, c.task_id.type)))
    return sa.select(ended.awaited()).add_cte(gone.cte("gone")) if store.dialect_name == "postgresql" else gone


def lapse_all_of(store: Store, connection: Connection, holders: Collection[str]) -> int:
    """These holders are proven dead: their rows are due now. When they were renewed last stays known."""
    where = (c.holder.in_(holders), sa.func.coalesce(c.claim, "") != DIED)
    due_at = sa.case((c.eligible_at > store.now, store.now), else_=c.eligible_at)
    # In this order: MySQL assigns from left to right.
    due = ((c.acquired_at, c.eligible_at - c.ttl), (c.eligible_at, due_at), (c.claim, DIED))
    return connection.execute(sa.update(leases).where(*where).ordered_values(*due)).rowcount


def is_claimed_by(task_id: Any, token: Any, holder: Any) -> tuple[sa.ColumnElement[bool], ...]:
    """The row is that of this claim: values, or parameters."""
    return (c.task_id == task_id, c.token == token, _held_by(holder))


def _held_by(holder: Any) -> sa.ColumnElement[bool]:
    # Hidden from the planner: without statistics it would go through all rows of the holder to find a few by id.
    mine: sa.ColumnElement[bool] = sa.func.coalesce(c.holder, NOBODY) == holder
    return mine


def _among(many: int) -> sa.ColumnElement[bool]:
    """``is_any_of`` with parameters, whose values ``_filled`` gives."""
    ids, tokens = listed("id", many, c.task_id.type), listed("token", many, c.token.type)
    if many == 1:
        return sa.and_(c.task_id == ids[0], c.token == tokens[0])
    pairs = [sa.tuple_(*pair) for pair in zip(ids, tokens, strict=True)]
    return sa.and_(c.task_id.in_(ids), sa.tuple_(c.task_id, c.token).in_(pairs))


def _filled(claims: Collection[tuple[str, int]]) -> dict[str, Any]:
    return filled("id", [id_ for id_, _ in claims]) | filled("token", [token for _, token in claims])


def is_any_of(claims: Collection[tuple[str, int]]) -> sa.ColumnElement[bool]:
    # The plain id list is what every planner finds the primary key with.
    return sa.and_(
        c.task_id.in_([task_id for task_id, _ in claims]), sa.tuple_(c.task_id, c.token).in_([tuple(p) for p in claims])
    )
