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
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakSet

from celery import Celery
from celery.worker import state

from argus_celery import signals
from argus_celery.errors import StoreUnavailable
from argus_celery.flow.claim import TRUST_MARGIN
from argus_celery.flow.renew import NOTHING, ended, renew
from argus_celery.flow.revoke import cancelled
from argus_celery.flow.runtime import Runtime
from argus_celery.hooks import told
from argus_celery.hooks.durable import is_durable, options_of
from argus_celery.hooks.request import DurableRequest
from argus_celery.records import Renewal

logger = logging.getLogger(__name__)

RETRY_PAUSE = 0.5
"""Seconds between attempts while the store is away, so that the renewal comes first when it is back."""


KILL_AFTER = 1.0
"""Seconds that a run without progress has to end in when it was told, before its child is killed."""


@dataclass
class InHand:
    """What the main process knows of one claim of its pool."""

    request: DurableRequest
    trusted_until: float
    told_at: float | None = None


class Renewing:
    """The renewal of one worker."""

    def __init__(self, app: Celery, rt: Runtime, holder: str, pool: Any) -> None:
        self.app, self.rt, self.holder, self.pool = app, rt, holder, pool
        self.in_hand: dict[told.Held, InHand] = {}
        self.pid = os.getpid()
        self._bell = threading.Event()
        self._stopping = False

    def start(self) -> None:
        _at_work.add(self)
        threading.Thread(target=self._run, name="argus-renew", daemon=True).start()

    def stop(self) -> None:
        self._stopping = True
        _at_work.discard(self)
        self._bell.set()

    def look(self) -> None:
        """Renew now: something may have been taken back."""
        self._bell.set()

    def _run(self) -> None:
        while os.getpid() == self.pid:
            self._bell.wait(self._pause())
            self._bell.clear()
            if self._stopping:
                return
            try:
                self.run_once()
            except Exception:
                logger.exception("argus: a renewal failed and will be repeated")

    def run_once(self) -> Renewal:
        """Renew what the pool has in hand; tell the runs whose lease is lost or can be trusted no longer."""
        self._look()
        sent_at = time.monotonic()
        try:
            # Nobody could show progress while the store was away.
            renewal = renew(self.rt, self.holder, list(self.in_hand), progress=self._was_away())
        except StoreUnavailable:
            renewal = NOTHING
        else:
            self._trust(renewal, sent_at)
        self._tell(renewal.lost | renewal.stalled | self._out_of_trust())
        return renewal

    def _was_away(self) -> bool:
        return self.rt.store.outage.recent(self.rt.settings.renew_interval)

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
        lost = set(lost)
        news = {claim for claim in lost if self.in_hand[claim].told_at is None}
        for claim in lost - news:
            self._tell_again(self.in_hand[claim])
        news -= self._ended(news)
        revoked = self._revoked(news)
        for claim in news:
            one = self.in_hand[claim]
            one.told_at = time.monotonic()
            if claim in revoked:
                one.request.stop_revoked(partial(one.request.tell, self.pool))
            else:
                logger.warning("argus: the lease of task %s (token %s) is lost; its run is told to stop", *claim)
                one.request.tell(self.pool)
            self._announce(*claim)

    def _tell_again(self, one: InHand) -> None:
        """Its child may not have had the claim in hand yet. A run that was told is not told again; if it is one that
        has to show progress and does not even end, its child is killed."""
        assert one.told_at is not None
        if one.request.progress_timeout and time.monotonic() - one.told_at > KILL_AFTER:
            one.request.kill(self.pool)
        else:
            one.request.tell(self.pool)

    def _ended(self, lost: set[told.Held]) -> set[told.Held]:
        """While this process was starved, or waited for the store, runs went on to their end."""
        gone = lost - {request.claimed for request in active_requests()} if lost else set()
        if self.rt.store.outage.since is None:  # else asking would cost time that the runs do not have
            with suppress(StoreUnavailable):
                gone |= ended(self.rt, lost - gone)
        return gone

    def _revoked(self, lost: set[told.Held]) -> set[told.Held]:
        with suppress(StoreUnavailable):
            return cancelled(self.rt, lost) if lost else set()
        return set()

    def _announce(self, task_id: str, token: int) -> None:
        signals.lease_lost.send(sender=self.rt.store.app_name, task_id=task_id, token=token, holder=self.holder)

    def _pause(self) -> float:
        if self.in_hand and self.rt.store.outage.since is not None:
            return RETRY_PAUSE
        return min([self.rt.settings.lease_ttl, *self._own_times()]) / 3

    def _own_times(self) -> list[float]:
        """Of all durable tasks that this worker has: one may come in at any moment."""
        own = [options_of(task) for task in list(self.app.tasks.values()) if is_durable(task)]
        return [time for one in own for time in (one.lease_ttl, one.progress_timeout) if time is not None]


_at_work: WeakSet[Renewing] = WeakSet()


def look(app: Celery) -> None:
    """The workers of this app in this process look at once whether what they run is still theirs."""
    for one in list(_at_work):
        if one.app is app:
            one.look()


def active_requests() -> list[DurableRequest]:
    """The durable requests that the pool has accepted. The set is weak and changes under other threads."""
    while True:
        try:
            return [request for request in tuple(state.active_requests) if isinstance(request, DurableRequest)]
        except RuntimeError:
            continue
