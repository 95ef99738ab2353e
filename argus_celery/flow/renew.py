"""Renew: one statement a period moves on all claims that a worker holds."""

from __future__ import annotations

from collections.abc import Collection

from argus_celery import signals
from argus_celery.flow.runtime import Runtime
from argus_celery.records import QUEUE, Renewal
from argus_celery.store import attempts, leases

Held = tuple[str, int]

NOTHING = Renewal(frozenset(), frozenset())


def renew(rt: Runtime, holder: str, claims: Collection[tuple[str, int]]) -> Renewal:
    """Renew these (task, token) claims. A row that another transaction has locked is skipped, and is not lost.

    Lost is what was seen under another token or holder, or is gone; a claim yet to be made, or whose run has ended by
    itself, is neither.
    """
    if not claims:
        return NOTHING
    store = rt.store
    run = store.statement if store.dialect.returning else store.transaction
    held = run(lambda connection: leases.renew(store, connection, holder, claims))
    missing = set(claims) - held
    lost = _lost(rt, holder, missing) if missing else frozenset()
    if signals.lease_renewed.receivers:
        signals.lease_renewed.send(sender=store.app_name, holder=holder, count=len(held))
    return Renewal(frozenset(held), lost)


def _lost(rt: Runtime, holder: str, missing: set[Held]) -> frozenset[Held]:
    ids = [task_id for task_id, _ in missing]
    standing = rt.store.statement(lambda connection: leases.standing(connection, ids))
    lost = {one for one in missing if _is_lost(standing.get(one[0]), one[1], holder)}
    if lost:
        # Most have only just ended by themselves: the pool reports a run's end behind its commit.
        lost -= rt.store.statement(lambda connection: attempts.ended_by_themselves(connection, lost))
    return frozenset(lost)


def _is_lost(row: tuple[int, str] | None, token: int, holder: str) -> bool:
    if row is None:
        return True
    not_yet_claimed = row == (token - 1, QUEUE)
    only_locked = row == (token, holder)
    return not not_yet_claimed and not only_locked
