"""What Celery keeps by thread, taken along: the app that is current and the task in hand, with its request.

Context variables go along by themselves, into a thread as into an asyncio task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar
from weakref import WeakSet

from celery import _state

T = TypeVar("T")


class Carried:
    """What was current where this was made."""

    def __init__(self) -> None:
        self.app = _state._tls.current_app
        self.task: Any = _state.get_current_task()
        self.request = self.task.request_stack.top if self.task is not None else None
        self.tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        """Of asyncio, that bear it."""

    @contextmanager
    def put(self) -> Iterator[None]:
        """Current again in this block."""
        before, _state._tls.current_app = _state._tls.current_app, self.app
        if self.task is not None:
            _state._task_stack.push(self.task)
            self.task.request_stack.push(self.request)
        try:
            yield
        finally:
            if self.task is not None:
                self.task.request_stack.pop()
                _state._task_stack.pop()
            _state._tls.current_app = before

    def call(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        with self.put():
            return function(*args, **kwargs)


carried_here: ContextVar[Carried | None] = ContextVar("argus_carried", default=None)
"""What the coroutines that are started here carry along, and the calls in other threads."""


def carrying(function: Callable[..., T]) -> Callable[..., T]:
    """The same, with what is carried here."""
    carried = carried_here.get()
    return function if carried is None else partial(carried.call, function)


class CarriedCoroutine(Coroutine[Any, Any, Any]):
    """A coroutine that finds what it carries at each of its steps, between those of others in the same thread."""

    instead: BaseException | None = None
    """Thrown in in place of what is thrown in next."""

    def __init__(self, inner: Coroutine[Any, Any, Any], carried: Carried) -> None:
        self.inner, self.carried = inner, carried

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)  # cr_frame and its like, for whoever looks at tasks

    def __await__(self) -> Generator[Any, Any, Any]:
        return self  # an iterator with send and throw is what a generator is here

    def __iter__(self) -> CarriedCoroutine:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        with self.carried.put():
            return self.inner.send(value)

    def throw(self, *error: Any) -> Any:
        instead, self.instead = self.instead, None
        with self.carried.put():
            return self.inner.throw(*(error if instead is None else (instead,)))

    def close(self) -> None:
        with self.carried.put():
            self.inner.close()
