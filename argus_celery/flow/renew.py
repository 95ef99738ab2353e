"""Renew: one statement a period moves on all claims that a worker holds."""

from __future__ import annotations

from collections.abc import Collection

from argus_celery import signals
from argus_celery.flow.requeue import PROJECT_CANCELLED
from argus_celery.flow.revoke import revoke
from argus_celery.flow.runtime import Runtime
from argus_celery.records import QUEUE, Renewal
from argus_celery.store import attempts, leases

Held = tuple[str, int]

NOTHING = Renewal(frozenset(), frozenset())


def renew(rt: Runtime, holder: str, claims: Collection[tuple[str, int]], *, progress: bool = False) -> Renewal:
    """Renew these (task, token) claims; ``progress``: they have shown some now.

    A row that another transaction has locked is skipped, and is not lost.

    Lost is what was seen under another token or holder, or is gone; a claim yet to be made, or whose run has ended by
    itself, is neither. A run whose project was cancelled has ended so with this.
    """
    if not claims:
        return NOTHING
    store = rt.store
    run = store.statement if store.dialect.returning else store.transaction
    renewed = run(lambda connection: leases.renew(store, connection, holder, claims, progress=progress))
    if renewed.cancelled:
        revoke(rt, [task_id for task_id, _ in renewed.cancelled], PROJECT_CANCELLED)
    held = renewed.held - renewed.cancelled
    missing = set(claims) - held
    lost = _lost(rt, holder, missing) if missing else frozenset()
    locked = missing - lost if not progress else set()
    stalled = renewed.stalled | (_stalled(rt, holder, locked) if locked else set())
    if signals.lease_renewed.receivers:
        signals.lease_renewed.send(sender=store.app_name, holder=holder, count=len(held))
    return Renewal(frozenset(held), lost, frozenset(stalled - lost))


def _stalled(rt: Runtime, holder: str, locked: set[Held]) -> set[Held]:
    """Whoever has locked a row may be the very run that shows nothing."""
    late = rt.store.statement(lambda connection: leases.stalled(rt.store, connection, holder, locked))
    return {one for one in locked if one[0] in late}


def _lost(rt: Runtime, holder: str, missing: set[Held]) -> frozenset[Held]:
    ids = [task_id for task_id, _ in missing]
    standing = rt.store.statement(lambda connection: leases.standing(connection, ids))
    lost = {one for one in missing if _is_lost(standing.get(one[0]), one[1], holder)}
    return frozenset(lost - ended(rt, lost))


def ended(rt: Runtime, claims: Collection[Held]) -> set[Held]:
    """Those of these whose run has ended by itself: the pool reports that behind the commit."""
    if not claims:
        return set()
    return rt.store.statement(lambda connection: attempts.ended_by_themselves(connection, claims))


def _is_lost(row: tuple[int, str] | None, token: int, holder: str) -> bool:
    if row is None:
        return True
    not_yet_claimed = row == (token - 1, QUEUE)
    only_locked = row == (token, holder)
    return not not_yet_claimed and not only_locked
