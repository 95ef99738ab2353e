"""Restore: what a worker does at its boot, and what keeps being done. Safe to do twice, by two, at once."""

from __future__ import annotations

from collections.abc import Callable, Collection

from argus_celery import signals
from argus_celery.flow import alarm, steer
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.runtime import Runtime
from argus_celery.records import DispatchReport, HolderFacts
from argus_celery.store import backlog, holders, leases

IsDead = Callable[[HolderFacts], bool]


def restore(rt: Runtime, me: HolderFacts, is_dead: IsDead) -> DispatchReport:
    """Note this worker, free the leases of provably dead ones of its host without waiting for the TTL, and sweep."""
    rt.store.transaction(lambda connection: holders.register(rt.store, connection, me))
    report = sweep(rt, me, is_dead)
    signals.restore_finished.send(sender=rt.store.app_name, report=report)
    return report


def sweep(rt: Runtime, me: HolderFacts | None = None, is_dead: IsDead | None = None) -> DispatchReport:
    """Free what is proven lapsed, dispatch what is due, meet alarms and deadlines, complete what has drained."""
    if me is not None and is_dead is not None:
        free_the_dead(rt, me, is_dead)
    report = dispatch(rt)
    if report.alarmed:
        alarm.sweep(rt)
    if report.closed:
        steer.complete_drained(rt)
    return report


def free_the_dead(rt: Runtime, me: HolderFacts, is_dead: IsDead) -> int:
    """Make the leases of dead holders due now. Death is proven, never guessed from a name."""
    busy = rt.store.statement(lambda connection: holders.with_leases(connection, me.host))
    dead = [facts.id for facts in busy if facts.id != me.id and is_dead(facts)]
    if not dead:
        return 0
    return rt.store.transaction(lambda connection: leases.lapse_all_of(rt.store, connection, dead))


def probe(rt: Runtime) -> bool:
    """Is anything due now? One cheap statement."""
    return rt.store.statement(lambda connection: backlog.heads(rt.store, connection)).any_due


def nodes(rt: Runtime, ids: Collection[str]) -> dict[str, str]:
    """The node names of these holders, as far as they are known."""
    return rt.store.statement(lambda connection: holders.nodes(connection, ids))


def seen(rt: Runtime, holder: str) -> None:
    """Note that this worker lives."""
    rt.store.statement(lambda connection: holders.seen(rt.store, connection, holder))


def sign_off(rt: Runtime, holder: str) -> None:
    """Note that this worker has stopped."""
    rt.store.statement(lambda connection: holders.sign_off(rt.store, connection, holder))
