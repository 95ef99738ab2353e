"""Renew all claims that this worker's pool has in hand, from the main process, in one statement a period.

The main process needs no word from its children: the message's token, plus one, is the token of the claim. It goes on
while the pool drains, until the process ends.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from celery import Celery
from celery.worker import state

from argus_celery import signals
from argus_celery.errors import StoreUnavailable
from argus_celery.flow.claim import TRUST_MARGIN
from argus_celery.flow.renew import NOTHING, renew
from argus_celery.flow.runtime import Runtime
from argus_celery.hooks import told
from argus_celery.hooks.durable import is_durable, options_of
from argus_celery.hooks.request import DurableRequest
from argus_celery.records import Renewal

logger = logging.getLogger(__name__)

RETRY_PAUSE = 0.5
"""Seconds between attempts while the store is away, so that the renewal comes first when it is back."""


@dataclass
class InHand:
    """What the main process knows of one claim of its pool."""

    request: DurableRequest
    trusted_until: float
    told: bool = False


class Renewing:
    """The renewal of one worker."""

    def __init__(self, app: Celery, rt: Runtime, holder: str, pool: Any) -> None:
        self.app, self.rt, self.holder, self.pool = app, rt, holder, pool
        self.in_hand: dict[told.Held, InHand] = {}
        self.pid = os.getpid()
        self._stopped = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="argus-renew", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        while os.getpid() == self.pid and not self._stopped.wait(self._pause()):
            try:
                self.run_once()
            except Exception:
                logger.exception("argus: a renewal failed and will be repeated")

    def run_once(self) -> Renewal:
        """Renew what the pool has in hand; tell the runs whose lease is lost or can be trusted no longer."""
        self._look()
        sent_at = time.monotonic()
        try:
            renewal = renew(self.rt, self.holder, list(self.in_hand))
        except StoreUnavailable:
            renewal = NOTHING
        else:
            self._trust(renewal, sent_at)
        self._tell(renewal.lost | self._out_of_trust())
        return renewal

    def _look(self) -> None:
        """The requests that are in the pool now, with those known already."""
        now = time.monotonic()
        # The registry of requests is the process's, and tests run workers of several apps in one.
        mine = [request for request in active_requests() if request.app is self.app]
        current = {request.claimed: request for request in mine if request.claimed is not None}
        self.in_hand = {
            claim: self.in_hand.get(claim) or InHand(request, now + self._trust_of(request))
            for claim, request in current.items()
        }

    def _trust_of(self, request: DurableRequest) -> float:
        return (request.lease_ttl or self.rt.settings.lease_ttl) * (1 - TRUST_MARGIN)

    def _trust(self, renewal: Renewal, sent_at: float) -> None:
        for claim, one in self.in_hand.items():
            if claim not in renewal.lost:  # neither held nor lost: not claimed yet, so its window has not begun
                one.trusted_until = sent_at + self._trust_of(one.request)

    def _out_of_trust(self) -> set[told.Held]:
        now = time.monotonic()
        return {claim for claim, one in self.in_hand.items() if one.trusted_until < now}

    def _tell(self, lost: Iterable[told.Held]) -> None:
        for claim in lost:
            one = self.in_hand[claim]
            if not one.told:
                one.told = True
                logger.warning("argus: the lease of task %s (token %s) is lost; its run is told to stop", *claim)
                told.tell(claim, self.pool, one.request.worker_pid)
                self._announce(*claim)

    def _announce(self, task_id: str, token: int) -> None:
        signals.lease_lost.send(sender=self.rt.store.app_name, task_id=task_id, token=token, holder=self.holder)

    def _pause(self) -> float:
        if self.in_hand and self.rt.store.outage.since is not None:
            return RETRY_PAUSE
        return min([self.rt.settings.lease_ttl, *self._own_ttls()]) / 3

    def _own_ttls(self) -> list[float]:
        """Of all durable tasks that this worker has: one may come in at any moment."""
        tasks = list(self.app.tasks.values())
        return [ttl for task in tasks if is_durable(task) and (ttl := options_of(task).lease_ttl) is not None]


def active_requests() -> list[DurableRequest]:
    """The durable requests that the pool has accepted. The set is weak and changes under other threads."""
    while True:
        try:
            return [request for request in tuple(state.active_requests) if isinstance(request, DurableRequest)]
        except RuntimeError:
            continue
