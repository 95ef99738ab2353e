"""Lapse: a holder is gone. Its runs end as lost, are charged, and the worn-out ones become dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from argus_celery import signals
from argus_celery.flow import alarm
from argus_celery.flow.end import end, follow_up
from argus_celery.flow.publish import send
from argus_celery.flow.requeue import dispatch_own
from argus_celery.flow.runtime import Runtime
from argus_celery.flow.wake import Released
from argus_celery.records import AttemptOutcome, Dispatch, TaskState
from argus_celery.store import attempts, leases, tasks
from argus_celery.store.leases import Lease
from argus_celery.store.tasks import Ending

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection


@dataclass(frozen=True, slots=True)
class Lapsed:
    """Rows whose run was lost, by what becomes of them."""

    rows: tuple[Lease, ...] = ()
    alive: tuple[Lease, ...] = ()
    dead: tuple[tuple[Lease, int, str], ...] = ()
    """With the losses and the reason."""
    charged: bool = False
    released: Released = field(default_factory=Released)
    """What waited for the dead."""


WORKER_DIED, LAPSED = "its worker died", "the lease lapsed"


def lapse(rt: Runtime, holder: str, task_id: str, token: int, detail: str, *, died: bool = True) -> TaskState | None:
    """The run of this claim is known to be gone (``died``: with its process): do what dispatch would do after the TTL.

    ``QUEUED``: another run is on its way. ``DEAD``: it was lost too often. ``None``: the claim was not held (any more).
    """
    claim = (task_id, token)
    lapsed, ours = rt.store.transaction(lambda connection: _write(rt, connection, holder, claim, detail, died))
    announce(rt, lapsed)
    send(rt, ours)
    follow_up(rt, lapsed.released)
    alarm.meet(rt, lapsed.released.alarms)
    if not lapsed.rows:
        return None
    return TaskState.DEAD if lapsed.dead else TaskState.QUEUED


def _write(
    rt: Runtime, connection: Connection, holder: str, claim: tuple[str, int], detail: str, died: bool
) -> tuple[Lapsed, list[Dispatch]]:
    held = leases.lock_held(rt.store, connection, holder, [claim])
    rows = [replace(row, died=died) for row in held]
    lapsed = end_lost(rt, connection, rows, detail, charged=True)
    alive = [row.task_id for row in lapsed.alive]
    slots = [row.task_id for row in lapsed.alive if row.limited]
    if alive:
        leases.put_back(connection, alive)
    return lapsed, dispatch_own(rt, connection, alive, slots)


def end_lost(
    rt: Runtime, connection: Connection, rows: Sequence[Lease], detail: str | None = None, *, charged: bool
) -> Lapsed:
    """Note the attempts of these locked, worker-held rows as lost; bury those that were lost too often.

    Without a detail each row tells whether its worker has died or fallen silent.
    """
    started = [row.task_id for row in rows if row.started]
    if not rows:
        return Lapsed()
    whys = {row.task_id: _why(row, detail) for row in rows}
    for why, died in sorted({(whys[row.task_id], row.died) for row in rows}):
        ids = [row.task_id for row in rows if (whys[row.task_id], row.died) == (why, died)]
        attempts.append(rt.store, connection, ids, AttemptOutcome.LOST, why, died=died)
    if started:
        tasks.note_attempt(connection, started)
    if not charged or not started:
        return Lapsed(tuple(rows), tuple(rows))
    tasks.charge_loss(connection, started)
    worn = tasks.worn_out(connection, started)
    dead = [
        (row, worn[row.task_id][0], _reason(rt, *worn[row.task_id], whys[row.task_id]))
        for row in rows
        if row.task_id in worn
    ]
    released = _bury(rt, connection, dead)
    alive = tuple(row for row in rows if row.task_id not in worn)
    return Lapsed(tuple(rows), alive, tuple(dead), charged=True, released=released)


def _why(row: Lease, detail: str | None) -> str:
    why = detail or (WORKER_DIED if row.died else LAPSED)
    return why if row.stalled is None else f"no progress for {row.stalled / 1000:g} s: {why}"


def _reason(rt: Runtime, losses: int, limit: int, detail: str) -> str:
    whose = "argus_max_losses" if limit == rt.settings.max_losses else f"the task's own max_losses is {limit}"
    return f"lost its worker {losses} times ({whose}); the last time: {detail}"


def _bury(rt: Runtime, connection: Connection, dead: Sequence[tuple[Lease, int, str]]) -> Released:
    """Dead letters: ended, with their errbacks still owed (``deliver`` pays them once)."""
    endings = [
        Ending(
            row.task_id,
            row.token,
            TaskState.DEAD,
            why,
            follows=True,
            leads=row.leads,
            limited=row.limited,
            alarms=row.project_id if row.alarms else None,
        )
        for row, _, why in dead
    ]
    return end(rt, connection, endings)


def announce(rt: Runtime, lapsed: Lapsed) -> None:
    sender = rt.store.app_name
    for row in lapsed.rows:
        signals.lease_lapsed.send(
            sender=sender, task_id=row.task_id, token=row.token, holder=row.holder, charged=lapsed.charged
        )
    for row, losses, reason in lapsed.dead:
        signals.task_dead.send(sender=sender, task_id=row.task_id, token=row.token, losses=losses, reason=reason)
