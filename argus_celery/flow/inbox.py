"""An inbox: the ids that one party waits for, and what has come of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from argus_celery.store.results import ResultRow


class Inbox:
    """Several threads may wait at it; one of them takes what has come, and ``stir`` wakes all."""

    def __init__(self) -> None:
        self.ids: set[str] = set()
        """Added to and discarded from at any moment, without a lock: also by the garbage collector, in any thread."""
        self._come: dict[str, ResultRow] = {}
        self._changed = threading.Condition()
        self._stirred = 0
        self._waiting = 0

    @property
    def is_awaited(self) -> bool:
        return self._waiting > 0

    @contextmanager
    def awaited(self) -> Iterator[None]:
        """Somebody waits here."""
        with self._changed:
            self._waiting += 1
        try:
            yield
        finally:
            with self._changed:
                self._waiting -= 1

    def put(self, rows: dict[str, ResultRow]) -> None:
        if rows:
            with self._changed:
                self._come |= rows
            self.stir()

    def stir(self) -> None:
        """Let all who wait here look whether what they wait for is there."""
        with self._changed:
            self._stirred += 1
            self._changed.notify_all()

    def take(self, seconds: float) -> dict[str, ResultRow]:
        """What has come, or comes within the time."""
        with self._changed:
            before = self._stirred
            self._changed.wait_for(lambda: self._come or self._stirred != before, seconds)
            come, self._come = self._come, {}
        return come
