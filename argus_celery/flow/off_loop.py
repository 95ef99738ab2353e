"""What waits for the store must not hold an event loop up: it is done in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")


async def off_loop(call: Callable[[], T]) -> T:
    """The call's result, made in another thread. Who is cancelled meanwhile waits for its end first."""
    # A future and no task, which whoever cancels all tasks would cancel apart from this one.
    running = asyncio.get_running_loop().run_in_executor(None, copy_context().run, call)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            try:
                await asyncio.wait([running])
            except asyncio.CancelledError:
                continue
        raise
