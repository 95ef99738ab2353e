"""The worker's own loop: restore at boot, then dispatch what is due and sweep, for as long as the process lives.

An idle worker asks the store less than once a second. The store being away ends nothing: it is said once, waited for,
and work goes on when it is back.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections.abc import Callable, Sequence

from celery.worker import state

from argus_celery.errors import StoreError, StoreUnavailable
from argus_celery.flow import restore
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.mend import mend
from argus_celery.flow.runtime import Runtime
from argus_celery.flow.steal import Room, steal
from argus_celery.hooks import rescued
from argus_celery.hooks.errands import Errands
from argus_celery.hooks.holder import is_provably_dead
from argus_celery.records import DispatchReport, HolderFacts

logger = logging.getLogger(__name__)

IDLE_PAUSE = 2.0
"""Seconds between looks for due work where nothing happens: together with the sweeps under one statement a second."""
BUSY_PAUSE = 1.0
REFILL_PAUSE = 0.2
"""Where rows wait for room in the dispatch window and tasks are being taken."""
AWAY_PAUSE = 1.0
SEEN_INTERVAL = 30.0
MEND_INTERVAL = 60.0
MEND_REST = 100
"""Times the length of a slow sweep is the pause behind it at least, however much waits."""


class Loop:
    """The loop of one worker; ``run_once`` is one look at the store."""

    def __init__(
        self,
        rt: Runtime,
        me: HolderFacts,
        errands: Errands,
        pay_debts: Callable[[], object],
        learn: Callable[[], object] = lambda: None,
        say_expired: Callable[[Sequence[str]], object] = lambda ids: None,
        prune: Callable[[], float] = lambda: 3600.0,
        room: Callable[[], Room | None] = lambda: None,
    ) -> None:
        self.rt, self.me, self.errands, self.pay_debts = rt, me, errands, pay_debts
        self.say_expired = say_expired
        self.learn = learn
        """Called at boot and with each sweep: what the store has to tell a worker."""
        self.prune = prune
        """A bounded piece of pruning; returns the seconds until the next."""
        self.room = room
        """What this worker could do, and does not."""
        self.pid = os.getpid()
        self.booted = threading.Event()
        """Set when the first look is over, whether the store answered or not."""
        self._restored = False
        self._stopping = False
        self._away = False
        self._sweep_at = self._seen_at = self._mend_at = self._prune_at = 0.0
        self._taken = 0
        self._idle_since: float | None = None
        self._begun = 0
        self._thread = threading.Thread(target=self._run, name="argus-loop", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Let the look under way and the errands that wait come to their end, within the time."""
        self._stopping = True
        self.errands.wake()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        while os.getpid() == self.pid:
            pause = self._guarded()
            self.booted.set()
            if self._stopping:
                return
            self.errands.wait(pause)

    def _guarded(self) -> float:
        """One round; the pause after it. Whatever goes wrong, the worker lives."""
        try:
            report = self.run_once()
        except (StoreUnavailable, StoreError) as error:
            self._say_away(error)
            return random.uniform(0.5, 1.0) * AWAY_PAUSE
        except Exception:
            logger.exception("argus: a round of the worker's loop failed and will be repeated")
            return AWAY_PAUSE
        self._say_back()
        return self._pause(report)

    def run_once(self) -> DispatchReport:
        """Errands first, then one look at the store: restore at boot, a sweep when it is time, else a dispatch."""
        self.errands.run_once()
        now = time.monotonic()
        if not self._restored:
            report = restore.restore(self.rt, self.me, self._is_dead)
            self.learn()
            self._restored = True
            self._plan_sweep(now)
            self._seen_at = now + SEEN_INTERVAL
        elif self._stopping:
            report = DispatchReport()
        elif now >= self._sweep_at:
            report = restore.sweep(self.rt, self.me, self._is_dead)
            self.learn()
            self._plan_sweep(now)
        else:
            report = dispatch(self.rt)
        if not report.dispatched and self._steals(now, report):
            report = dispatch(self.rt)
        rescued.say(self.rt, report)
        self.say_expired(report.expired)
        if now >= self._seen_at:
            restore.seen(self.rt, self.me.id)
            self._seen_at = now + SEEN_INTERVAL
        if now >= self._mend_at:
            self._mend_at = now + self._mend()
        if report.owed:
            self.pay_debts()
        if now >= self._prune_at and not self._stopping:
            self._prune_at = now + self.prune()
        return report

    def _steals(self, now: float, report: DispatchReport) -> bool:
        """Where other tasks are held, and this worker had room and began nothing for a while."""
        room, begun = self.room(), state.all_total_count[0]
        if room is None or begun != self._begun or not report.held or self._stopping:
            self._idle_since, self._begun = None, begun
            return False
        if self._idle_since is None:
            self._idle_since = now
        if now - self._idle_since < min(IDLE_PAUSE, self.rt.settings.steal_after):
            return False
        self._idle_since = now
        return steal(self.rt, room) > 0

    def _mend(self) -> float:
        """Seconds until the next time: at once while there was something to mend."""
        began = time.monotonic()
        if mend(self.rt):
            return 0.0
        return max(MEND_INTERVAL, MEND_REST * (time.monotonic() - began)) * random.uniform(0.8, 1.2)

    def _is_dead(self, other: HolderFacts) -> bool:
        return is_provably_dead(other, self.me)

    def _plan_sweep(self, now: float) -> None:
        self._sweep_at = now + self.rt.settings.sweep_interval * random.uniform(0.8, 1.2)

    def _pause(self, report: DispatchReport) -> float:
        taken, self._taken = self._taken, state.all_total_count[0]
        busy = bool(state.active_requests) or self._taken != taken
        # What is due next behind the rows just taken is not known yet.
        if report.dispatched or report.parked or (report.more and self._taken != taken):
            pause = REFILL_PAUSE
        else:
            pause = BUSY_PAUSE if busy else IDLE_PAUSE
        pause = min(pause, max(0.0, self._sweep_at - time.monotonic()) + 0.01)
        if report.next_due_ms is not None:
            pause = min(pause, report.next_due_ms / 1000 + 0.005)
        return pause

    def _say_away(self, error: Exception) -> None:
        if not self._away:
            self._away = True
            logger.error("argus: %s. The worker waits for the store and goes on by itself", error)

    def _say_back(self) -> None:
        if self._away:
            self._away = False
            logger.warning("argus: the store is back")
