"""Dispatch: take due rows, hand them to the queue, commit, publish. Backlog, eta, back-off, lost messages and dead
workers all come through here; the boot hook, the beat task, the worker's loop and the CLI call nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from argus_celery.flow import alarm, lapse
from argus_celery.flow.admit import admit, give_up, look
from argus_celery.flow.end import end, follow_up
from argus_celery.flow.lapse import Lapsed
from argus_celery.flow.publish import send
from argus_celery.flow.requeue import PROJECT_CANCELLED, to_queue, unrun
from argus_celery.flow.runtime import Runtime
from argus_celery.flow.share import due_waiting
from argus_celery.flow.wake import Released
from argus_celery.records import NOBODY, QUEUE, Dispatch, DispatchReport, TaskState
from argus_celery.store import backlog, leases, projects
from argus_celery.store.backlog import Heads
from argus_celery.store.leases import Lease
from argus_celery.store.tasks import Ending

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection


@dataclass
class Taken:
    """What one dispatch transaction took."""

    rows: list[Lease] = field(default_factory=list)
    more: bool = False
    parked: int = 0
    lapsed: Lapsed = field(default_factory=Lapsed)
    ended: list[str] = field(default_factory=list)
    expired: list[str] = field(default_factory=list)
    dispatches: list[Dispatch] = field(default_factory=list)
    released: Released = field(default_factory=Released)
    """What waited for those that ended."""


def dispatch(rt: Runtime, limit: int = 500) -> DispatchReport:
    """Dispatch up to ``limit`` due rows. Callers that race take different rows; a second call finds nothing."""
    heads = rt.store.statement(lambda connection: backlog.heads(rt.store, connection))
    if not heads.any_due:
        return DispatchReport(
            next_due_ms=heads.next_due_ms,
            closed=heads.closed,
            owed=heads.owed,
            alarmed=heads.alarmed,
            held=heads.held is not None,
        )
    taken = rt.store.transaction(lambda connection: _take(rt, connection, heads, limit)) if heads.row_due else Taken()
    if heads.limit_due:
        taken.dispatches += rt.store.transaction(lambda connection: to_queue(rt, connection, look(rt, connection)))
    lapse.announce(rt, taken.lapsed)
    send(rt, taken.dispatches)
    follow_up(rt, taken.lapsed.released)
    follow_up(rt, taken.released)
    alarm.meet(rt, taken.lapsed.released.alarms | taken.released.alarms)
    return DispatchReport(
        dispatched=tuple(one.task_id for one in taken.dispatches),
        lapsed=tuple(row.task_id for row in taken.lapsed.rows),
        lost_by=tuple(row.holder for row in taken.lapsed.rows),
        dead=tuple(row.task_id for row, _, _ in taken.lapsed.dead),
        ended=tuple(taken.ended),
        expired=tuple(taken.expired),
        more=taken.more,
        parked=taken.parked,
        next_due_ms=heads.next_due_ms,
        closed=heads.closed,
        alarmed=heads.alarmed,
        held=heads.held is not None,
        owed=heads.owed or bool(taken.lapsed.dead) or bool(taken.ended),
    )


def _take(rt: Runtime, connection: Connection, heads: Heads, limit: int) -> Taken:
    taken = Taken()
    _lock_due(rt, connection, heads, limit, taken)
    rows = _without_the_lost(rt, connection, taken)
    rows = _without_the_ended(rt, connection, rows, taken)
    going = admit(rt, connection, rows)
    taken.parked = len({row.task_id for row in rows} - {row.task_id for row in going})
    taken.dispatches += to_queue(rt, connection, going)
    return taken


def _lock_due(rt: Runtime, connection: Connection, heads: Heads, limit: int, taken: Taken) -> None:
    """Rows that were held keep their place in the window; rows that wait in the store fill what is free of it."""
    # After an outage workers renew first: their leases are met a renewal period later.
    workers_too = not rt.store.outage.recent(rt.settings.renew_interval)
    taken.rows = leases.due_held(rt.store, connection, limit, workers_too=workers_too)
    taken.more = len(taken.rows) == limit
    used = backlog.in_broker(connection)
    for level in heads.due_levels():
        free = rt.settings.dispatch_window - used.get(level.queue, 0)
        room = min(limit - len(taken.rows), free)
        if room <= 0:
            taken.more = True
            continue
        waiting = due_waiting(rt, connection, level, room)
        taken.rows += waiting
        taken.more |= len(waiting) == room
        used[level.queue] = used.get(level.queue, 0) + len(waiting)


def _without_the_lost(rt: Runtime, connection: Connection, taken: Taken) -> list[Lease]:
    """A due row that a worker holds has lapsed. What lapsed in a store outage is nobody's fault."""
    held = [row for row in taken.rows if row.holder > QUEUE]
    charged = not rt.store.outage.recent(rt.settings.lease_ttl)
    taken.lapsed = lapse.end_lost(rt, connection, held, charged=charged)
    dead = {row.task_id for row, _, _ in taken.lapsed.dead}
    return [row for row in taken.rows if row.task_id not in dead]


def _without_the_ended(rt: Runtime, connection: Connection, rows: Sequence[Lease], taken: Taken) -> list[Lease]:
    """End what has expired or whose project was cancelled; park what a pause has missed, or what has lapsed since.

    The rows are locked and the project's status is read behind the locks, so that steering, which writes the status
    before it touches the rows, either is seen here or waits for these rows.
    """
    status = projects.read(connection, {row.project_id for row in rows})
    going: list[Lease] = []
    stopped: list[Lease] = []
    endings: list[Ending] = []
    for row in rows:
        project = status.get(row.project_id)
        if project is None or not project.status.live:
            endings.append(unrun(rt, row, TaskState.CANCELLED, PROJECT_CANCELLED))
        elif row.expired:
            endings.append(unrun(rt, row, TaskState.EXPIRED, "expired before it could run"))
        elif project.paused:
            stopped.append(row)
        else:
            going.append(row)
    taken.ended = [ending.task_id for ending in endings]
    taken.expired = [ending.task_id for ending in endings if ending.state is TaskState.EXPIRED]
    taken.released = end(rt, connection, endings)
    taken.dispatches += _park(rt, connection, stopped)
    return going


def _park(rt: Runtime, connection: Connection, rows: Sequence[Lease]) -> list[Dispatch]:
    """These stay until the resume of their project; returns what goes out in their slots."""
    held = [row for row in rows if row.holder != NOBODY]
    if held:
        leases.put_back(connection, [row.task_id for row in held])
    if rows:
        leases.park(connection, [row.task_id for row in rows])
    slots = [row.task_id for row in held if row.limited]
    return to_queue(rt, connection, give_up(rt, connection, slots)) if slots else []
