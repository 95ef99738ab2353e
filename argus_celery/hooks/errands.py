"""Writes that the main process owes the store (a lost child, a cancel, a time limit), done off Celery's event loop.

They are done in order by the worker's loop thread, at once; an errand that meets the store away stays first in line.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from argus_celery.errors import StoreUnavailable

logger = logging.getLogger(__name__)

Errand = Callable[[], object]


class Errands:
    """A queue of errands with a bell that rings when one comes in."""

    def __init__(self) -> None:
        self._waiting: deque[Errand] = deque()
        self._bell = threading.Event()
        self._turn = threading.Lock()

    def soon(self, errand: Errand) -> None:
        """Have it done by the loop thread, as soon as the store answers."""
        self._waiting.append(errand)
        self._bell.set()

    def wait(self, seconds: float) -> None:
        """Sleep until an errand comes in, ``wake`` is called, or the time is over."""
        self._bell.wait(seconds)
        self._bell.clear()

    def wake(self) -> None:
        self._bell.set()

    def run_once(self) -> int:
        """Do what waits and return how many were done. Raises ``StoreUnavailable`` with the rest still waiting."""
        done = 0
        with self._turn:
            while self._waiting:
                _do(self._waiting[0])
                self._waiting.popleft()
                done += 1
        return done


def _do(errand: Errand) -> None:
    try:
        errand()
    except StoreUnavailable:
        raise
    except Exception:
        logger.exception("argus: an errand of the worker failed; the lease will lapse by itself")


errands = Errands()
"""This process's errands."""
