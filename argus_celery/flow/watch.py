"""Watch: wait for the ends of tasks, for all threads of a process, by one look at the store at a time.

Who waits has an inbox of ids. One thread of the process hears of ends, or looks in a rhythm where nobody tells, reads
what has ended and puts it into the inboxes. Beneath the hearing it looks slowly all the same.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref

from argus_celery.errors import StoreError, StoreUnavailable
from argus_celery.flow.inbox import Inbox
from argus_celery.store import ended, results
from argus_celery.store.engine import Store
from argus_celery.store.results import ResultRow
from argus_celery.store.waking import Waking

logger = logging.getLogger(__name__)

SLOWEST = 0.25
"""Seconds after which all that is waited for is looked at, though nothing was heard."""
NEW = 0.025
"""The same for what is waited for since just now: its end may have been told a moment before."""
AWAY_PAUSE = 0.5
IDLE = 20.0
"""Seconds without anybody who waits, after which the thread and its connection end."""
REST = 4
"""Times the length of a look is the pause behind it, however much is waited for."""


class Watch:
    """Of one store, in one process; a forked child begins anew."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._bell = threading.Event()
        self._inboxes: weakref.WeakSet[Inbox] = weakref.WeakSet()
        self._thread: threading.Thread | None = None

    def wait(self, inbox: Inbox, seconds: float) -> dict[str, ResultRow]:
        """Those of the inbox's tasks that have ended since the last call; nothing when the time is over.

        Also nothing, early, if another thread that waits at this inbox was given what has come.
        """
        self.store.check_outside("results cannot be waited for")
        with inbox.awaited():
            self._attend(inbox)
            return inbox.take(seconds)

    def _attend(self, inbox: Inbox) -> None:
        if self._pid != os.getpid():
            self._begin()
        with self._lock:
            self._inboxes.add(inbox)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="argus-watch", daemon=True)
                self._thread.start()
        self._bell.set()

    def _awaited(self) -> list[Inbox]:
        with self._lock:
            return [inbox for inbox in self._inboxes if inbox.is_awaited]

    def _run(self) -> None:
        looking = Looking(self.store)
        while self._pid == os.getpid() and not self._retires(looking):
            looking.run_once(self._awaited())
            looking.pause(self._bell)
        looking.close()

    def _retires(self, looking: Looking) -> bool:
        with self._lock:
            idle = time.monotonic() - looking.wanted_at > IDLE
            if idle:
                self._thread = None
            return idle


class Looking:
    """How the thread hears of ends, and when it looks next; ``run_once`` is one look, if there is reason for it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.wanted_at = time.monotonic()
        self._waking: Waking | None = None
        self._known: set[str] = set()
        self._look_at = self._rest_until = 0.0

    def run_once(self, inboxes: list[Inbox]) -> int:
        """How many ends were found."""
        wanted = [(inbox, inbox.ids.copy()) for inbox in inboxes]
        ids = set().union(*(mine for _, mine in wanted))
        if not ids:
            self._known = ids
            return 0
        try:
            rows = self._read(ids)
        except (StoreUnavailable, StoreError) as error:
            self._give_up(error)
            return 0
        for inbox, mine in wanted:
            inbox.put({id_: rows[id_] for id_ in mine & rows.keys()})
        return len(rows)

    def _read(self, ids: set[str]) -> dict[str, ResultRow]:
        began = self.wanted_at = time.monotonic()
        waking = self._hearing(ids)
        heard = set(waking.heard(ids))
        wanted = ids if began >= self._look_at else heard
        rows = results.read_ended(self.store, wanted) if wanted else {}
        ends = time.monotonic()
        if wanted == ids:
            self._look_at = ends + SLOWEST
        if rows:
            waking.active()
        self._rest_until = ends + REST * (ends - began)
        return rows

    def _hearing(self, ids: set[str]) -> Waking:
        now = time.monotonic()
        if self._waking is None:
            self._waking, self._look_at = ended.hearing(self.store), now
        if not ids <= self._known:
            self._waking.active()
            self._look_at = min(self._look_at, now + NEW)
        self._known = ids
        return self._waking

    def _give_up(self, error: Exception) -> None:
        """Until the store is back, which is heard of, and looked for, anew."""
        logger.debug("argus: who waits for results goes on waiting: %s", error)
        self.close()
        self._rest_until = time.monotonic() + AWAY_PAUSE

    def pause(self, bell: threading.Event) -> None:
        """Until something may have come, or somebody new waits."""
        time.sleep(max(0.0, self._rest_until - time.monotonic()))
        until_look = max(0.0, self._look_at - time.monotonic())
        if not self._known:
            bell.wait(IDLE)
        elif self._waking is not None and self._waking.fileno() is not None:
            self._waking.wait(until_look)
        elif self._waking is not None:
            bell.wait(min(self._waking.pause(), until_look))
        bell.clear()

    def close(self) -> None:
        if self._waking is not None:
            self._waking.close()
            self._waking = None
