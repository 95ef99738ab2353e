"""Time limits of coroutines, which can be kept in every pool: a coroutine can be cancelled, and left."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

from celery.exceptions import TimeLimitExceeded

from argus_celery.hooks import greenlets
from argus_celery.hooks.holder import main_pid

PATIENCE = 5.0
"""Seconds that a loop which something blocks has to hear of a cancellation; then the coroutine is left alone."""


@dataclass(frozen=True, slots=True)
class Limits:
    """In seconds; those that the pool does not keep itself."""

    soft: float | None = None
    hard: float | None = None


NO_LIMITS = Limits()


class HardTimeLimit(BaseException):
    """No handler of the task is to see it: in the pools that kill, none does."""

    def __init__(self, timeout: float) -> None:
        super().__init__(timeout)
        self.timeout = timeout


class CutShort(TimeLimitExceeded):
    """What the main process hears of it."""

    def __init__(self, timeout: float) -> None:
        super().__init__(timeout)
        self.timeout = timeout


def limits_of(task: Any) -> Limits:
    """The limits of the request in hand. Prefork keeps both itself, gevent the hard one."""
    request = task.request
    if request.is_eager or os.getpid() != main_pid():
        return NO_LIMITS
    hard, soft = request.timelimit or (None, None)
    keeps_hard = greenlets.is_patched()
    return Limits(soft or task.soft_time_limit, None if keeps_hard else hard or task.time_limit)


class Clock:
    """What the wait for a coroutine has to look at, and when."""

    def __init__(self, limits: Limits) -> None:
        began = time.monotonic()
        self._limits = limits
        self._soft = None if limits.soft is None else began + limits.soft
        self._hard = None if limits.hard is None else began + limits.hard
        self._patience: float | None = None
        self._raised: BaseException | None = None

    def pause(self) -> float | None:
        """Seconds until then."""
        ends = [end for end in (self._soft, self._hard, self._patience) if end is not None]
        return max(min(ends) - time.monotonic(), 0) if ends else None

    def soft_passed(self) -> float | None:
        """The limit, once."""
        if not _is_over(self._soft):
            return None
        self._soft = None
        return self._limits.soft

    def hard_passed(self) -> float | None:
        return self._limits.hard if _is_over(self._hard) else None

    def unheard(self, error: BaseException) -> None:
        """It was raised where the coroutine is waited for, and the loop is to hear of it."""
        self._raised, self._patience = error, time.monotonic() + PATIENCE

    def heard(self) -> None:
        self._patience = None

    def given_up(self) -> BaseException | None:
        """What the loop has not heard of in time."""
        return self._raised if _is_over(self._patience) else None


def _is_over(end: float | None) -> bool:
    return end is not None and end <= time.monotonic()
