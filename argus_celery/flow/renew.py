"""Renew: one statement a period moves on all claims that a worker holds."""

from __future__ import annotations

from collections.abc import Collection

from argus_celery import signals
from argus_celery.flow.runtime import Runtime
from argus_celery.records import QUEUE, Renewal
from argus_celery.store import leases

NOTHING = Renewal(frozenset(), frozenset())


def renew(rt: Runtime, holder: str, claims: Collection[tuple[str, int]]) -> Renewal:
    """Renew these (task, token) claims. A row that another transaction has locked is skipped, and is not lost.

    Lost is what was seen under another token or holder, or is gone; a claim yet to be made is neither.
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


def _lost(rt: Runtime, holder: str, missing: set[tuple[str, int]]) -> frozenset[tuple[str, int]]:
    ids = [task_id for task_id, _ in missing]
    standing = rt.store.statement(lambda connection: leases.standing(connection, ids))
    return frozenset((task_id, token) for task_id, token in missing if _is_lost(standing.get(task_id), token, holder))


def _is_lost(row: tuple[int, str] | None, token: int, holder: str) -> bool:
    if row is None:
        return True
    not_yet_claimed = row == (token - 1, QUEUE)
    only_locked = row == (token, holder)
    return not not_yet_claimed and not only_locked
