"""The event loop of this process: one, in a thread of its own, made when the first coroutine of a task comes.

A pool child makes its own after the fork. Bodies share it, so that a client that belongs to a loop (of HTTP, of a
database) is made once and serves them all.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from typing import Any

from celery.signals import worker_process_shutdown

from argus_celery.flow.timers import note_timeouts
from argus_celery.hooks import greenlets
from argus_celery.hooks.carried import CarriedCoroutine, carried_here

CLOSE_PATIENCE = 5.0
"""Seconds that coroutines have, when the process ends, for what they do when they are cancelled."""


class EventLoop:
    """A running event loop."""

    def __init__(self) -> None:
        self._closing = False
        self._executor = greenlets.executor()
        self._up, self._down = greenlets.flag(), greenlets.flag()
        greenlets.start_real_thread(self._run)
        self._up.wait()

    def call(self, function: Callable[..., Any], *args: Any, context: Context | None = None) -> None:
        """From any thread, and from a signal handler."""
        self.loop.call_soon_threadsafe(function, *args, context=context)

    def close(self) -> None:
        """Cancel what still runs, shut asynchronous generators, stop. Waits for that, but not for ever."""
        self._closing = True
        with suppress(RuntimeError):  # closed already
            self.call(self.loop.stop)
        self._down.wait(CLOSE_PATIENCE)

    def _run(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_task_factory(_carrying)
        note_timeouts(self.loop)
        self.loop.set_default_executor(self._executor)
        self.loop.call_soon(self._up.set)
        try:
            while not self._closing:
                with suppress(SystemExit, KeyboardInterrupt):  # of a task: whoever awaits it gets it too
                    self.loop.run_forever()
            self._shut()
        finally:
            self._down.set()

    def _shut(self) -> None:
        left = asyncio.all_tasks(self.loop)
        for task in left:
            task.cancel()
        if left:
            self.loop.run_until_complete(asyncio.wait(left))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()


def _carrying(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
    """A task that a body starts carries what the body does."""
    context = options.get("context")
    carried = carried_here.get() if context is None else context.get(carried_here)
    if carried is not None and isinstance(coroutine, Coroutine) and not isinstance(coroutine, CarriedCoroutine):
        coroutine = CarriedCoroutine(coroutine, carried)
    task = asyncio.Task(coroutine, loop=loop, **options)
    if carried is not None:
        carried.tasks.add(task)
    return task


_lock = threading.Lock()
_loop: EventLoop | None = None


def event_loop() -> EventLoop:
    """The event loop of this process."""
    global _loop
    with _lock:
        if _loop is None:
            _loop = EventLoop()
        return _loop


def _forked() -> None:
    """A lock that another thread held in the parent is nobody's here, and the parent's loop runs in the parent."""
    global _lock, _loop
    _lock, _loop = threading.Lock(), None


os.register_at_fork(after_in_child=_forked)


@atexit.register
@worker_process_shutdown.connect(weak=False)
def close(**_: Any) -> None:
    """At the end of the process: a pool child's, which runs no other handlers, or any other's."""
    global _loop
    loop, _loop = _loop, None
    if loop is not None:
        loop.close()
