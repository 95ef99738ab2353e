"""Timeouts of asyncio around a coroutine: one that ends with the run cannot cut a wait short that outlives it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

_here: ContextVar[tuple[asyncio.TimerHandle, ...]] = ContextVar("argus_timers", default=())


def note_timeouts(loop: asyncio.AbstractEventLoop) -> None:
    """From now on ``under_way`` knows of the timeouts that begin on this loop, unless it takes no other methods."""
    theirs = loop.call_at

    def call_at(when: float, callback: Callable[..., object], *args: Any, **options: Any) -> asyncio.TimerHandle:
        timer = theirs(when, callback, *args, **options)
        if _is_timeout(callback):
            _here.set((*under_way(), timer))
        return timer

    with suppress(AttributeError):  # uvloop
        loop.call_at = call_at  # type: ignore[assignment, method-assign]


def under_way() -> tuple[asyncio.TimerHandle, ...]:
    """The timers of ``asyncio.timeout`` and ``asyncio.wait_for`` in which the caller is, or what has started it."""
    return tuple(timer for timer in _here.get() if not timer.cancelled())


def _is_timeout(callback: Any) -> bool:
    # The latter is that of wait_for before Python 3.12.
    return isinstance(getattr(callback, "__self__", None), asyncio.Timeout) or (
        getattr(callback, "__name__", "") == "_release_waiter"
    )
