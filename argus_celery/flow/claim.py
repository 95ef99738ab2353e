"""Claim: of all copies of a message one is granted the lease; every other is refused."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence

from argus_celery import signals
from argus_celery.flow.enqueue import adopt
from argus_celery.flow.outage import wait_out
from argus_celery.flow.runtime import Runtime
from argus_celery.records import QUEUE, Claim, Delivery
from argus_celery.store import leases
from argus_celery.store.leases import Granted

__all__ = ["adopt", "claim", "refuse_stale"]

TRUST_MARGIN = 0.1
"""The part of a TTL by which a holder stops trusting its own clock early."""


def claim(
    rt: Runtime,
    holder: str,
    deliveries: Sequence[Delivery],
    mark: str | None = None,
    progress_timeout: float | None = None,
) -> list[Claim | None]:
    """Claim these deliveries in one statement; ``None`` for each that is stale, and to be dropped quietly.

    While the store is away the call waits and repeats; the mark finds what was granted by an attempt whose answer
    was lost. ``progress_timeout`` (seconds): their runs have to show progress.
    """
    progress_ms = None if progress_timeout is None else round(progress_timeout * 1000)
    ask = _Asking(rt, holder, mark or uuid.uuid4().hex, deliveries, progress_ms)
    granted = wait_out(ask)
    claims = [_claim(ask, granted.pop((delivery.task_id, delivery.token + 1), None)) for delivery in deliveries]
    _announce(rt, deliveries, claims)
    return claims


def refuse_stale(rt: Runtime, deliveries: Sequence[Delivery]) -> set[Delivery]:
    """Those of these deliveries that a claim would refuse, before they are claimed. Raises ``StoreUnavailable``."""
    ids = [delivery.task_id for delivery in deliveries]
    standing = rt.store.statement(lambda connection: leases.standing(connection, ids))
    stale = [one for one in deliveries if standing.get(one.task_id) != (one.token, QUEUE)]
    _announce(rt, stale, [None] * len(stale))
    return set(stale)


class _Asking:
    """One claim call over its attempts."""

    def __init__(
        self, rt: Runtime, holder: str, mark: str, deliveries: Sequence[Delivery], progress_ms: int | None
    ) -> None:
        self.rt, self.holder, self.mark, self.deliveries, self.progress_ms = rt, holder, mark, deliveries, progress_ms
        self.attempts = 0
        self.sent_at = 0.0

    def __call__(self) -> dict[tuple[str, int], Granted]:
        store, repeated = self.rt.store, self.attempts > 0
        self.attempts += 1
        ids = [delivery.task_id for delivery in self.deliveries]
        granted: list[Granted] = []
        if repeated:
            granted += store.statement(lambda c: leases.granted_by(c, self.holder, self.mark, ids))
        self.sent_at = time.monotonic()
        run = store.statement if store.dialect.returning else store.transaction
        granted += run(lambda c: leases.grant(store, c, self.holder, self.mark, self.deliveries, self.progress_ms))
        return {(one.task_id, one.token): one for one in granted}


def _claim(ask: _Asking, granted: Granted | None) -> Claim | None:
    if granted is None:
        return None
    deadline = ask.sent_at + granted.ttl / 1000 * (1 - TRUST_MARGIN)
    return Claim(granted.task_id, granted.token, ask.holder, granted.project_id, granted.ttl, deadline)


def _announce(rt: Runtime, deliveries: Sequence[Delivery], claims: Sequence[Claim | None]) -> None:
    for delivery, one in zip(deliveries, claims, strict=True):
        if one is None:
            signals.delivery_refused.send(sender=rt.store.app_name, task_id=delivery.task_id, token=delivery.token)
        else:
            signals.lease_claimed.send(
                sender=rt.store.app_name, task_id=one.task_id, token=one.token, holder=one.holder
            )
