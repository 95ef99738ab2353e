"""Dispatch: take due rows, hand them to the queue, commit, publish. Backlog, eta, back-off, lost messages and dead
workers all come through here; the boot hook, the beat task, the worker's loop and the CLI call nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from argus_celery.flow import lapse
from argus_celery.flow.lapse import Lapsed
from argus_celery.flow.publish import send
from argus_celery.flow.requeue import to_queue, unrun
from argus_celery.flow.runtime import Runtime
from argus_celery.records import QUEUE, Dispatch, DispatchReport, TaskState
from argus_celery.store import leases, projects, tasks
from argus_celery.store.leases import Heads, Lease
from argus_celery.store.tasks import Ending

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection


@dataclass
class Taken:
    """What one dispatch transaction took."""

    rows: list[Lease] = field(default_factory=list)
    more: bool = False
    lapsed: Lapsed = field(default_factory=Lapsed)
    ended: list[str] = field(default_factory=list)
    dispatches: list[Dispatch] = field(default_factory=list)


def dispatch(rt: Runtime, limit: int = 500) -> DispatchReport:
    """Dispatch up to ``limit`` due rows. Callers that race take different rows; a second call finds nothing."""
    heads = rt.store.statement(lambda connection: leases.heads(rt.store, connection))
    if not heads.any_due:
        return DispatchReport(next_due_ms=heads.next_due_ms, closed=heads.closed, owed=heads.owed)
    taken = rt.store.transaction(lambda connection: _take(rt, connection, heads, limit))
    lapse.announce(rt, taken.lapsed)
    send(rt, taken.dispatches)
    return DispatchReport(
        dispatched=tuple(one.task_id for one in taken.dispatches),
        lapsed=tuple(row.task_id for row in taken.lapsed.rows),
        dead=tuple(row.task_id for row, _, _ in taken.lapsed.dead),
        ended=tuple(taken.ended),
        more=taken.more,
        next_due_ms=heads.next_due_ms,
        closed=heads.closed,
        owed=heads.owed or bool(taken.lapsed.dead) or (rt.foreign_results and bool(taken.ended)),
    )


def _take(rt: Runtime, connection: Connection, heads: Heads, limit: int) -> Taken:
    taken = Taken()
    _lock_due(rt, connection, heads, limit, taken)
    rows = _without_the_lost(rt, connection, taken)
    rows = _without_the_ended(rt, connection, rows, taken)
    taken.dispatches = to_queue(rt, connection, rows)
    return taken


def _lock_due(rt: Runtime, connection: Connection, heads: Heads, limit: int, taken: Taken) -> None:
    """Rows that were held keep their place in the window; rows that wait in the store fill what is free of it."""
    # After an outage workers renew first: their leases are met a renewal period later.
    workers_too = not rt.store.outage.recent(rt.settings.renew_interval)
    taken.rows = leases.due_held(rt.store, connection, limit, workers_too=workers_too)
    taken.more = len(taken.rows) == limit
    used = leases.in_broker(connection)
    for level in heads.due_levels():
        free = rt.settings.dispatch_window - used.get(level.queue, 0)
        room = min(limit - len(taken.rows), free)
        if room <= 0:
            taken.more = True
            continue
        waiting = leases.due_waiting(rt.store, connection, level, room)
        taken.rows += waiting
        taken.more |= len(waiting) == room
        used[level.queue] = used.get(level.queue, 0) + len(waiting)


def _without_the_lost(rt: Runtime, connection: Connection, taken: Taken) -> list[Lease]:
    """A due row that a worker holds has lapsed. What lapsed in a store outage is nobody's fault."""
    held = [row for row in taken.rows if row.holder > QUEUE]
    charged = not rt.store.outage.recent(rt.settings.lease_ttl)
    taken.lapsed = lapse.end_lost(rt, connection, held, "the lease lapsed", charged=charged)
    dead = {row.task_id for row, _, _ in taken.lapsed.dead}
    return [row for row in taken.rows if row.task_id not in dead]


def _without_the_ended(rt: Runtime, connection: Connection, rows: Sequence[Lease], taken: Taken) -> list[Lease]:
    """End what has expired or whose project was cancelled; park what a pause has missed.

    The rows are locked and the project's status is read behind the locks, so that steering, which writes the status
    before it touches the rows, either is seen here or waits for these rows.
    """
    status = projects.read(connection, {row.project_id for row in rows})
    going: list[Lease] = []
    endings: list[Ending] = []
    for row in rows:
        project = status.get(row.project_id)
        if project is None or not project.status.live:
            endings.append(unrun(rt, row, TaskState.CANCELLED, "the project was cancelled"))
        elif row.expired:
            endings.append(unrun(rt, row, TaskState.EXPIRED, "expired before it could run"))
        elif project.paused:
            leases.hand_back(rt.store, connection, [row.task_id])
            leases.park(connection, [row.task_id])
        else:
            going.append(row)
    taken.ended = [ending.task_id for ending in endings]
    if endings:
        leases.delete_all(connection, taken.ended)
        tasks.end(rt.store, connection, endings)
    return going
