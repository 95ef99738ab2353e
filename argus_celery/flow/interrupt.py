"""Interrupt: what runs too long in the main thread is ended by a timer signal. Limits inside each other all hold."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_AT_ONCE = 1e-6

_limits: list[_Limit] = []
"""Those around here, the outermost first. There is but one main thread."""


def is_possible() -> bool:
    """Python delivers signals to the main thread only."""
    return threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer")


def is_over() -> bool:
    """Has a limit around here struck? Whatever its error has become, nothing inside is to begin again."""
    return is_possible() and any(limit.struck for limit in _limits)


@contextmanager
def within(seconds: float, late: Callable[[], Exception]) -> Iterator[None]:
    """Raise ``late()`` in the block when it has taken so long. A timer that runs already still rings at its time."""
    limit, depth = _Limit(seconds, late), len(_limits)
    _limits.append(limit)
    try:
        limit.begin()
        yield
    finally:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
        finally:  # though one around strikes just now
            del _limits[depth:]
            limit.end()


class _Limit:
    """There is one timer: it rings for whichever is due first, this one or what it was set for before."""

    def __init__(self, seconds: float, late: Callable[[], Exception]) -> None:
        self.over, self.late, self.struck = time.monotonic() + seconds, late, False
        self.before = signal.getsignal(signal.SIGALRM)
        self._note_around()

    def begin(self) -> None:
        signal.signal(signal.SIGALRM, self._ring)
        self._arm()

    def end(self) -> None:
        signal.signal(signal.SIGALRM, self.before if self.before is not None else signal.SIG_DFL)
        if self.around is not None:
            signal.setitimer(signal.ITIMER_REAL, _left(self.around), self.every)

    def _ring(self, number: int, frame: Any) -> None:
        now = time.monotonic()
        if self.around is not None and self.around <= now:
            self._ring_around(number, frame)
        elif not self.struck and self.over <= now:
            self.struck = True
            self._arm()
            raise self.late()
        else:
            self._arm()

    def _ring_around(self, number: int, frame: Any) -> None:
        """As if this limit were not there."""
        signal.setitimer(signal.ITIMER_REAL, self.every, self.every)
        try:
            if callable(self.before):
                self.before(number, frame)
        finally:
            self._note_around()
            self._arm()

    def _note_around(self) -> None:
        left, self.every = signal.getitimer(signal.ITIMER_REAL)
        self.around = time.monotonic() + left if left else None

    def _arm(self) -> None:
        due = [at for at in (self.around, None if self.struck else self.over) if at is not None]
        signal.setitimer(signal.ITIMER_REAL, _left(min(due)) if due else 0)


def _left(at: float) -> float:
    return max(at - time.monotonic(), _AT_ONCE)
