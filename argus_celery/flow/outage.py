"""Waiting until the store is back."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from argus_celery.errors import StoreUnavailable

T = TypeVar("T")

LONGEST_PAUSE = 2.0


def wait_out(call: Callable[[], T], give_up: Callable[[], bool] | None = None) -> T:
    """Repeat ``call`` while the store is away, pausing 0.1 to 2 s; ``give_up`` is asked before each pause."""
    pause = 0.1
    while True:
        try:
            return call()
        except StoreUnavailable:
            if give_up is not None and give_up():
                raise
        time.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(pause * 2, LONGEST_PAUSE)
