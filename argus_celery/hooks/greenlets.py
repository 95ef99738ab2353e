"""What is different where gevent has patched the process: threads are greenlets there, and an event loop needs a real
one. Elsewhere these are the plain things.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, Protocol

from argus_celery.errors import HookError
from argus_celery.hooks.carried import carrying


def is_patched() -> bool:
    """Are threads greenlets of gevent here? Raises ``HookError`` where they are eventlet's."""
    eventlet, gevent = sys.modules.get("eventlet.patcher"), sys.modules.get("gevent.monkey")
    if eventlet is not None and eventlet.is_monkey_patched("thread"):
        raise HookError("coroutine tasks do not run in the pool eventlet: use prefork, threads, solo or gevent")
    return gevent is not None and bool(gevent.is_module_patched("threading"))


def is_time_limit(error: BaseException) -> bool:
    """Is it what Celery's gevent pool raises in a greenlet at its hard time limit?"""
    timeout = sys.modules.get("gevent.timeout")
    return timeout is not None and isinstance(error, timeout.Timeout)


def start_real_thread(target: Callable[[], None]) -> None:
    """A daemon."""
    if is_patched():
        from gevent import monkey

        monkey.get_original("_thread", "start_new_thread")(target, ())
    else:
        threading.Thread(target=target, name="argus-asyncio", daemon=True).start()


class Flag(Protocol):
    """Set once, from another real thread."""

    def set(self) -> None: ...
    def wait(self, timeout: float | None = None) -> bool: ...


def flag() -> Flag:
    """To be waited for where it was made."""
    return _GreenFlag() if is_patched() else threading.Event()


class _GreenFlag:
    def __init__(self) -> None:
        from gevent import get_hub
        from gevent.event import Event

        self._loop, self._event = get_hub().loop, Event()

    def set(self) -> None:
        self._loop.run_callback_threadsafe(self._event.set)

    def wait(self, timeout: float | None = None) -> bool:
        return bool(self._event.wait(timeout))


def executor() -> ThreadPoolExecutor:
    """For what coroutines call in other threads."""
    return _Greenlets() if is_patched() else _Threads(thread_name_prefix="argus-asyncio")


class _Threads(ThreadPoolExecutor):
    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return super().submit(carrying(fn), *args, **kwargs)


class _Greenlets(ThreadPoolExecutor):
    """Calls run as greenlets of the hub where this was made, as tasks do: in the thread of the event loop, gevent's
    threads would be greenlets that nobody switches to."""

    def __init__(self) -> None:  # asyncio wants this class; its threads are never made
        from gevent import get_hub

        self._hub = get_hub()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        from gevent import spawn_raw

        future: Future[Any] = Future()
        call = (copy_context().run, _call, future, carrying(fn), args, kwargs)
        self._hub.loop.run_callback_threadsafe(spawn_raw, *call)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """There is nothing to shut."""


def _call(future: Future[Any], fn: Callable[..., Any], args: Any, kwargs: Any) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = fn(*args, **kwargs)
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
