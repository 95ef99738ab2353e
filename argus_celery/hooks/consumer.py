"""How Celery's results wait for tasks of the store: Celery's own machinery for back ends that are told, fed by the
watch of this process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from queue import Empty
from typing import Any

from celery.backends.asynchronous import BaseResultConsumer
from celery.states import READY_STATES

from argus_celery.flow.inbox import Inbox
from argus_celery.flow.watch import Watch

LONGEST = 0.25
"""Seconds between two calls of ``on_interval``, as far as nothing comes."""


class NoBuffer:
    """Celery keeps what comes for nobody, for who asks later. Here who asks looks into the store, where it may have
    changed since: a task that failed can be put back.
    """

    def put(self, key: str, item: Any) -> None:
        pass

    def take(self, key: str) -> Any:
        raise Empty


class ResultConsumer(BaseResultConsumer):
    """Of one backend; the watch is the process's."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._inboxes: tuple[int, Inbox] = (os.getpid(), Inbox())

    @property
    def watch(self) -> Watch:
        watch: Watch = self.backend.argus.watch
        return watch

    @property
    def inbox(self) -> Inbox:
        """A forked child has one of its own: a thread of its parent may have had the lock."""
        if self._inboxes[0] != os.getpid():
            self._inboxes = (os.getpid(), Inbox())
        return self._inboxes[1]

    def start(self, initial_task_id: str, **_: Any) -> None:
        self.consume_from(initial_task_id)

    def consume_from(self, task_id: str) -> None:
        self.inbox.ids.add(task_id)

    def cancel_for(self, task_id: str) -> None:
        self.inbox.ids.discard(task_id)

    def on_wait_for_pending(self, result: Any, **options: Any) -> None:
        """What has ended before is not told."""
        for meta in result._iter_meta(**options):
            if meta is not None:
                self.on_state_change(meta, None)

    def drain_events_until(
        self, p: Any, timeout: float | None = None, on_interval: Callable[[], Any] | None = None
    ) -> Iterator[Any]:
        ends = None if timeout is None else time.monotonic() + timeout

        def wait(timeout: float) -> None:
            self.drain_events(timeout if ends is None else min(timeout, max(0.0, ends - time.monotonic())))

        pause = LONGEST if timeout is None else min(LONGEST, max(timeout, 0.001))
        return self.drainer.drain_events_until(p, timeout=timeout, interval=pause, on_interval=on_interval, wait=wait)

    def drain_events(self, timeout: float | None = None) -> None:
        inbox = self.inbox
        rows = self.watch.wait(inbox, LONGEST if timeout is None else timeout)
        for task_id, row in rows.items():
            self.on_state_change(self.backend.meta_of(task_id, row), None)
        if rows:
            inbox.stir()

    def on_state_change(self, meta: dict[str, Any], message: Any) -> None:
        super().on_state_change(meta, message)
        if meta["status"] in READY_STATES:
            self.cancel_for(meta["task_id"])
