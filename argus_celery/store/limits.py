"""Rows of limits, and of the tasks under them.

A limit's row is locked by whoever lets a task in under it, behind the leases and the tasks. Its slots are
counted from leases that somebody holds: the queue, or a worker. So no count can be wrong after a crash, and the slot of
a dead holder is that of a lease which lapses.

A task waits in the line of one limit at a time, one that was full when it was looked at, and out of dispatch's sight
(``paused``). So a line of a million costs those who are not in it nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.records import NOBODY, QUEUE, Bound
from argus_celery.store.engine import Store
from argus_celery.store.leases import Lease, read, select_lease
from argus_celery.store.schema import lease_limits, leases, limits

IDLE, WAITING, ADMITTED = 0, 1, 2
"""What a task is to one of its limits: not due (or in another's line), in its line, or with a slot."""
UNPARKED, BY_PAUSE, BY_LIMIT = 0, 1, 2
"""``paused`` of a lease."""

c, m = limits.c, lease_limits.c


@dataclass
class Room:
    """A limit that is locked. Instants and spacing are microseconds."""

    name: str
    concurrency: int | None
    spacing: int | None
    burst: int
    tat: int
    due_at: int | None
    now: int
    used: int = 0
    waits: bool = False
    """Somebody is in its line."""


def define(store: Store, connection: Connection, bounds: Collection[Bound]) -> None:
    """Make these limits where there are none, and what they allow that of now. They are locked then."""
    wanted = {bound.name: bound for bound in bounds}
    if not wanted:
        return
    known = _definitions(store, connection, sorted(wanted))
    new = [bound for name, bound in wanted.items() if name not in known]
    if new:
        rows = [_row(bound) for bound in sorted(new, key=lambda one: one.name)]
        store.dialect.insert_or_lock(connection, limits, rows)
        known = _definitions(store, connection, sorted(wanted))
    for name in sorted(wanted):
        if known[name] != wanted[name]:
            values = {**_row(wanted[name]), "due_at": store.now}
            connection.execute(sa.update(limits).where(c.name == name).values(**values))


def standing(connection: Connection, name: str) -> Bound | None:
    """What this limit allows, if there is one that limits anything."""
    return standing_of(connection, [name]).get(name)


def standing_of(connection: Connection, names: Collection[str]) -> dict[str, Bound]:
    """The same of several, by name."""
    if not names:
        return {}
    some = sa.select(c.name, c.concurrency, c.spacing, c.burst).where(c.name.in_(names))
    limiting = some.where(sa.or_(c.concurrency.is_not(None), c.spacing.is_not(None)))
    return {row.name: Bound(row.name, row.concurrency, row.spacing, row.burst) for row in connection.execute(limiting)}


def _definitions(store: Store, connection: Connection, names: Sequence[str]) -> dict[str, Bound]:
    query = sa.select(c.name, c.concurrency, c.spacing, c.burst).where(c.name.in_(names)).order_by(c.name)
    rows = connection.execute(store.dialect.for_update(query))
    return {row.name: Bound(row.name, row.concurrency, row.spacing, row.burst) for row in rows}


def _row(bound: Bound) -> dict[str, Any]:
    return {
        "name": bound.name,
        "concurrency": bound.concurrency,
        "spacing": bound.spacing,
        "burst": bound.burst,
    }


def lock(store: Store, connection: Connection, names: Collection[str], *, skip_locked: bool = False) -> dict[str, Room]:
    """Lock these limits in the order of their names, and count what is taken."""
    columns = (c.name, c.concurrency, c.spacing, c.burst, c.tat, c.due_at, (store.now * 1000).label("now"))
    query = sa.select(*columns).where(c.name.in_(names)).order_by(c.name)
    rows = connection.execute(store.dialect.for_update(query, skip_locked=skip_locked)).all()
    rooms = {r.name: Room(r.name, r.concurrency, r.spacing, r.burst, r.tat or 0, r.due_at, r.now) for r in rows}
    # Behind the locks: a statement that waits for a lock counts what was there before.
    for row in connection.execute(_counts(rooms)) if rooms else ():
        rooms[row.name].used, rooms[row.name].waits = row.used, row.waits is not None
    return rooms


def _counts(names: Collection[str]) -> sa.Select[Any]:
    # The holder is hidden from the planner: it would go through all that is held.
    held = sa.func.coalesce(leases.c.holder, NOBODY) > NOBODY
    used = (
        sa.select(sa.func.count())
        .select_from(lease_limits.join(leases, leases.c.task_id == m.task_id))
        .where(m.name == c.name, m.state == ADMITTED, held)
    )
    line = sa.select(sa.literal(1)).where(m.name == c.name, m.state == WAITING).limit(1)
    counts = (used.correlate(limits).scalar_subquery(), line.correlate(limits).scalar_subquery())
    return sa.select(c.name, counts[0].label("used"), counts[1].label("waits")).where(c.name.in_(names))


def next_in_line(connection: Connection, name: str, count: int) -> list[str]:
    """Who has waited longest of the most urgent."""
    query = sa.select(m.task_id).where(m.name == name, m.state == WAITING)
    return list(connection.execute(query.order_by(m.place, m.since).limit(count)).scalars())


def lock_parked(store: Store, connection: Connection, ids: Collection[str]) -> dict[str, Lease]:
    """Lock those of these rows that a limit has parked, skipping rows locked by others."""
    parked = (leases.c.task_id.in_(ids), leases.c.holder == NOBODY, leases.c.paused == BY_LIMIT)
    query = store.dialect.for_update(select_lease(store).where(*parked), skip_locked=True)
    return {row.task_id: row for row in read(connection, query)}


def still_parked(connection: Connection, ids: Collection[str]) -> set[str]:
    """Those of these tasks that a limit has parked, as committed."""
    parked = (leases.c.task_id.in_(ids), leases.c.paused == BY_LIMIT)
    return set(connection.execute(sa.select(leases.c.task_id).where(*parked)).scalars())


def names_of(connection: Connection, ids: Collection[str]) -> dict[str, list[str]]:
    """The limits of each of these tasks."""
    found: dict[str, list[str]] = {}
    for row in connection.execute(sa.select(m.task_id, m.name).where(m.task_id.in_(ids)).order_by(m.name)):
        found.setdefault(row.task_id, []).append(row.name)
    return found


def lines_of(connection: Connection, ids: Sequence[str]) -> dict[str, Bound]:
    """The limit in whose line each of these tasks stands."""
    columns = (m.task_id, c.name, c.concurrency, c.spacing, c.burst)
    query = sa.select(*columns).join(limits, c.name == m.name).where(m.state == WAITING)
    found: dict[str, Bound] = {}
    for start in range(0, len(ids), 500):
        rows = connection.execute(query.where(m.task_id.in_(ids[start : start + 500])))
        found |= {row.task_id: Bound(row.name, row.concurrency, row.spacing, row.burst) for row in rows}
    return found


def enter(store: Store, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Tasks come under limits: (task_id, name, state, place), in this order."""
    since = store.now * 1000 + sa.bindparam("number", type_=sa.BigInteger)
    given = [{**row, "number": number} for number, row in enumerate(rows)]
    connection.execute(sa.insert(lease_limits).values(since=since), given)


def leave(connection: Connection, ids: Collection[str]) -> None:
    """These tasks are under no limit any more."""
    connection.execute(sa.delete(lease_limits).where(m.task_id.in_(ids)))


def admit(connection: Connection, ids: Collection[str]) -> None:
    """Each has a slot of every limit of its own, from when the queue holds it."""
    connection.execute(sa.update(lease_limits).where(m.task_id.in_(ids)).values(state=ADMITTED))
    _park(connection, ids, UNPARKED)


def wait(connection: Connection, name: str, ids: Collection[str]) -> None:
    """They stand in the line of this limit, and in no other."""
    state = sa.case((m.name == name, WAITING), else_=IDLE)
    connection.execute(sa.update(lease_limits).where(m.task_id.in_(ids)).values(state=state))
    _park(connection, ids, BY_LIMIT)


def step_out(connection: Connection, ids: Collection[str], paused: int | None = None) -> None:
    """They have no slot and stand in no line: not due, or paused, or to be ended by the next dispatch."""
    connection.execute(sa.update(lease_limits).where(m.task_id.in_(ids)).values(state=IDLE))
    if paused is not None:
        _park(connection, ids, paused)


def _park(connection: Connection, ids: Collection[str], paused: int) -> None:
    connection.execute(sa.update(leases).where(leases.c.task_id.in_(ids)).values(paused=paused))


def note(connection: Connection, rooms: Sequence[Room]) -> None:
    """Keep when each of these locked limits is to be looked at again, and the pace of its starts."""
    values: dict[str, Any] = {"tat": sa.bindparam("new_tat"), "due_at": sa.bindparam("new_due_at")}
    given = [{"limit": room.name, "new_tat": room.tat or None, "new_due_at": room.due_at} for room in rooms]
    connection.execute(sa.update(limits).where(c.name == sa.bindparam("limit")).values(**values), given)


def due(store: Store, connection: Connection, count: int) -> list[str]:
    """Limits to be looked at now."""
    return list(connection.execute(sa.select(c.name).where(c.due_at <= store.now).limit(count)).scalars())


def stir(store: Store, connection: Connection, project_id: int) -> None:
    """What the queue held of this project was taken back: its slots are free for others."""
    held = sa.select(m.name).join(leases, leases.c.task_id == m.task_id)
    back = (leases.c.project_id == project_id, leases.c.holder == NOBODY, leases.c.limited > 0, m.state == ADMITTED)
    connection.execute(sa.update(limits).where(c.name.in_(held.where(*back))).values(due_at=store.now))


def left(store: Store, connection: Connection, count: int) -> tuple[list[str], list[str]]:
    """Limits with a line that nobody has a date to look at, as is right while they are full; and limits without a task
    whose next start owes nothing to the last. Not those of projects, which are kept.

    The cost follows the limits, not the lines.
    """
    line = sa.select(sa.literal(1)).where(m.name == c.name, m.state == WAITING).limit(1)
    member = sa.select(sa.literal(1)).where(m.name == c.name).limit(1)
    waits, used = (sa.func.coalesce(one.correlate(limits).scalar_subquery(), 0) for one in (line, member))
    idle = sa.and_(used == 0, sa.func.coalesce(c.tat, 0) <= store.now * 1000, c.name.not_like("project %"))
    query = sa.select(c.name, used.label("used")).where(sa.or_(sa.and_(c.due_at.is_(None), waits == 1), idle))
    rows = connection.execute(query.limit(count)).all()
    return [row.name for row in rows if row.used], [row.name for row in rows if not row.used]


def look_at(store: Store, connection: Connection, names: Collection[str]) -> None:
    """Have these looked at by the next dispatch; one that another has locked is in good hands."""
    mine = _lock_free(store, connection, names)
    if mine:
        connection.execute(sa.update(limits).where(c.name.in_(mine)).values(due_at=store.now))


def _lock_free(store: Store, connection: Connection, names: Collection[str]) -> list[str]:
    query = sa.select(c.name).where(c.name.in_(names)).order_by(c.name)
    return list(connection.execute(store.dialect.for_update(query, skip_locked=True)).scalars())


def forget_unused(store: Store, connection: Connection, names: Collection[str]) -> int:
    """Looked at again behind the locks of those that nobody else has locked: a task may be coming under one."""
    mine = _lock_free(store, connection, names)
    used = set(connection.execute(sa.select(m.name).where(m.name.in_(mine)).distinct()).scalars()) if mine else set()
    gone = [name for name in mine if name not in used]
    if gone:
        connection.execute(sa.delete(limits).where(c.name.in_(gone)))
    return len(gone)


def enter_all_of(store: Store, connection: Connection, project_id: int, name: str) -> None:
    """Every task of this project that is alive comes under its limit; what is handed out has a slot."""
    state = sa.case((leases.c.holder >= QUEUE, ADMITTED), else_=IDLE)
    alive = sa.select(leases.c.task_id, sa.literal(name), state, -leases.c.priority, store.now * 1000).where(
        leases.c.project_id == project_id
    )
    connection.execute(sa.insert(lease_limits).from_select(["task_id", "name", "state", "place", "since"], alive))
    connection.execute(sa.update(leases).where(leases.c.project_id == project_id).values(limited=1))
