"""Under gevent a signal is met in the event loop itself, where nothing may wait. Celery's handlers do: for the grace of
a soft shutdown, for the broker, for the pool. Each runs in a greenlet of its own instead."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

_SHUTDOWNS = ("SIGTERM", "SIGINT", "SIGQUIT")


def defer(pool: Any) -> None:
    """When Celery has installed its handlers; those of other pools stay as they are."""
    if not type(pool).__module__.endswith(".gevent"):
        return
    for name in _SHUTDOWNS:
        number = getattr(signal, name, None)
        handler = signal.getsignal(number) if number is not None else None
        if number is not None and callable(handler) and handler is not signal.default_int_handler:
            _install(number, handler)


def _install(number: int, handler: Callable[[int, FrameType | None], Any]) -> None:
    from gevent import spawn

    with suppress(ValueError):  # an embedded worker, not in the main thread: its process has handlers of its own
        signal.signal(number, lambda signum, frame: spawn(handler, signum, frame))
