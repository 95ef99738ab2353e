"""The dispatch window as an enqueuing process sees it: how many messages of a queue it may still send directly.

The store is asked at most every ``FRESH`` seconds, so the window is soft by what several producers send meanwhile;
dispatch itself counts exactly.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from argus_celery.records import NewTask
from argus_celery.store import backlog, queues
from argus_celery.store.engine import Store

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

FRESH = 1.0
FRESH_WHEN_FULL = 0.1


class Window:
    def __init__(self) -> None:
        self._free: dict[str, tuple[int, float]] = {}
        self._noted: set[tuple[str, int]] = set()

    def note(self, store: Store, tasks: Iterable[NewTask]) -> None:
        """Make the scheduler know the queues and priorities of these tasks; once per process and pair."""
        self.note_levels(store, {(task.message.queue, task.priority) for task in tasks})

    def knows(self, queue: str, priority: int) -> bool:
        return (queue, priority) in self._noted

    def note_levels(self, store: Store, levels: Collection[tuple[str, int]]) -> None:
        """The same for (queue, priority) pairs."""
        new = set(levels) - self._noted
        if new:
            _, committed = store.apart(lambda: queues.ensure(store, new))
            if committed:
                self._noted |= new

    def take(self, store: Store, connection: Connection, size: int, queue: str, unwritten: int) -> bool:
        """May one more message of this queue go to the broker at once? Not while older ones wait in the store.

        ``unwritten`` messages were let go before it in the same transaction, which the store does not know yet.
        """
        free, until = self._free.get(queue, (0, 0.0))
        if time.monotonic() >= until:
            free, until = self._look(store, connection, size - unwritten, queue)
        self._free[queue] = (max(free - 1, 0), until)
        return free > 0

    def forget(self) -> None:
        """Look again at the next call."""
        self._free.clear()

    def _look(self, store: Store, connection: Connection, size: int, queue: str) -> tuple[int, float]:
        older_wait, used = store.latest(connection, lambda latest: _used(store, latest, queue))
        free = 0 if older_wait else size - used
        return free, time.monotonic() + (FRESH if free > 0 else FRESH_WHEN_FULL)


def _used(store: Store, connection: Connection, queue: str) -> tuple[bool, int]:
    """Do older ones wait in the store, and how many messages does the broker hold?"""
    if any(level.queue == queue for level in backlog.heads(store, connection).due_levels()):
        return True, 0
    return False, backlog.in_broker(connection).get(queue, 0)
