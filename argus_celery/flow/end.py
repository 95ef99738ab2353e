"""End: locked rows come to their one terminal outcome. Every end of a task passes through here, and lets go what waited
for it; the caller passes that to ``follow_up`` after the commit."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from argus_celery import signals
from argus_celery.errors import StoreUnavailable
from argus_celery.flow.admit import give_up
from argus_celery.flow.publish import send
from argus_celery.flow.requeue import to_queue
from argus_celery.flow.runtime import Runtime
from argus_celery.flow.wake import Released, wake
from argus_celery.records import Dispatch
from argus_celery.store import alarms, leases, tasks
from argus_celery.store.tasks import Ending

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

AT_ONCE = 500


def end(rt: Runtime, connection: Connection, endings: Sequence[Ending]) -> Released:
    """Delete the leases, which the caller has locked, and write the outcomes."""
    if not endings:
        return Released()
    leases.delete_all(connection, [one.task_id for one in endings])
    return _ended(rt, connection, endings)


def end_runs(rt: Runtime, connection: Connection, endings: Sequence[Ending]) -> tuple[bool, Released]:
    """The same for tasks whose own run ends them; does a process wait for ends, and is to be told after the commit?"""
    if not endings:
        return False, Released()
    awaited = leases.finish_all(rt.store, connection, [one.task_id for one in endings])
    return awaited, _ended(rt, connection, endings)


def _ended(rt: Runtime, connection: Connection, endings: Sequence[Ending]) -> Released:
    """What has to happen in the ending transaction hangs here."""
    tasks.end(rt.store, connection, endings)
    alarming = [(one.alarms, one.task_id) for one in endings if one.alarms is not None]
    if alarming:
        alarms.sound(rt.store, connection, alarming)
    released = wake_after(rt, connection, [one.task_id for one in endings if one.leads])
    released.dispatches += _give_up_slots(rt, connection, endings)
    released.alarms = {project_id for project_id, _ in alarming}
    return released


def _give_up_slots(rt: Runtime, connection: Connection, endings: Sequence[Ending]) -> list[Dispatch]:
    """Whom the limits of these let in instead."""
    limited = [one.task_id for one in endings if one.limited]
    return to_queue(rt, connection, give_up(rt, connection, limited, ended=True)) if limited else []


def wake_after(rt: Runtime, connection: Connection, ended: Collection[str]) -> Released:
    """What comes after these ended tasks is told, and ends if it is never to run; nothing is done where nothing does.

    What comes after those in turn is left to ``follow_up``, so that a transaction stays small.
    """
    return end_abandoned(rt, connection, wake(rt, connection, ended))


def end_abandoned(rt: Runtime, connection: Connection, released: Released) -> Released:
    """End those that are never to run."""
    if released.abandoned:
        leases.delete_all(connection, [one.task_id for one in released.abandoned])
        tasks.end(rt.store, connection, released.abandoned)
        released.left |= {one.task_id for one in released.abandoned if one.leads}
        released.dispatches += _give_up_slots(rt, connection, released.abandoned)
    return released


def follow_up(rt: Runtime, released: Released) -> None:
    """After the commit: publish what became due, and tell the rest. The slow sweep does what an outage prevents."""
    left: set[str] = set()
    with suppress(StoreUnavailable):
        while True:
            send(rt, released.dispatches)
            _announce(rt, released)
            left |= released.left
            if not left:
                return
            some = sorted(left)[:AT_ONCE]
            left -= set(some)
            released = _wake_more(rt, some)


def _wake_more(rt: Runtime, ended: Sequence[str]) -> Released:
    return rt.store.transaction(lambda connection: wake_after(rt, connection, ended))


def _announce(rt: Runtime, released: Released) -> None:
    sender = rt.store.app_name
    for one in released.abandoned:
        signals.task_failed.send(sender=sender, task_id=one.task_id, token=one.token, error=one.error)
        signals.task_completed.send(sender=sender, task_id=one.task_id, token=one.token, state=one.state)
