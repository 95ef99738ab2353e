"""Calls from an event loop are made in a thread, so that the loop goes on. What Celery keeps by thread goes along."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from argus_celery.flow.off_loop import off_loop
from argus_celery.hooks.carried import Carried

T = TypeVar("T")


async def in_thread(call: Callable[[], T]) -> T:
    """The call's result. Who is cancelled meanwhile waits for its end first: it may be using the caller's session."""
    return await off_loop(partial(Carried().call, call))
