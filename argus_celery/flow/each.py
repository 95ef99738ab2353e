"""Each: a loop that goes on, in a later run, with the first item that was not finished."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar, cast

from argus_celery.config import fault_of_count
from argus_celery.errors import BadStep
from argus_celery.flow import canonical, naming, scope
from argus_celery.flow.given import Given
from argus_celery.flow.off_loop import off_loop
from argus_celery.flow.scope import Call, Scope
from argus_celery.flow.step import Steps

T = TypeVar("T")

_LOOP = ("argus_celery", "current.each", 0)
"""In place of the function of a step."""
_CONTAINERS = (list, tuple, set, frozenset, dict, str, range)


class Each(Generic[T]):
    """What ``current.each`` gives: a loop to go through once. It begins, and is named, where it is looped over."""

    def __init__(
        self,
        steps: Steps | None,
        iterable: Iterable[T] | AsyncIterable[T],
        name: str,
        batch: int,
        key: Callable[[T], Any] | None,
    ) -> None:
        if (fault := fault_of_count(batch)) is not None:
            raise BadStep(f"each(batch=...) {fault}")
        self._steps, self._name, self._batch, self._key = steps, name, batch, key
        self._iterable: Any = iterable
        self._begun = threading.Lock()

    def __iter__(self) -> Iterator[T]:
        if isinstance(self._iterable, AsyncIterable) and not isinstance(self._iterable, Iterable):
            raise BadStep(f"each: loop over {self._iterable!r:.100} with  async for")
        return cast(Iterator[T], self._begin(iter(self._iterable)))

    def __aiter__(self) -> AsyncIterator[T]:
        is_async = isinstance(self._iterable, AsyncIterable)
        return cast(
            AsyncIterator[T], self._begin(aiter(self._iterable) if is_async else _awaited(iter(self._iterable)))
        )

    def _begin(self, source: Any) -> Any:
        if not self._begun.acquire(blocking=False):
            raise BadStep(
                f"the loop {self._name!r} was begun already, and its items are given once:"
                " call current.each(...) for each loop, with a name of its own"
            )
        if self._steps is None:
            return source
        # The items are known by their values; of what gives them only a container tells which they are.
        told = type(self._iterable) in _CONTAINERS
        what = Given(None, [self._iterable], {}) if told else None
        return Items(self._steps, source, self._name, self._batch, self._key, what)


async def _awaited(items: Iterator[Any]) -> AsyncIterator[Any]:
    for item in items:
        yield item


class Items(Generic[T]):
    """One loop, in one thread or coroutine. Whoever leaves it lets go of this, and so is in its item no more."""

    def __init__(
        self,
        steps: Steps,
        source: Any,
        name: str,
        batch: int,
        key: Callable[[T], Any] | None,
        what: Given | None,
    ) -> None:
        self._steps, self._source, self._batch, self._key = steps, source, batch, key
        self._item: Scope | None = None
        self._seen: dict[str, int] = {}
        self._unwritten = 0
        self._by: tuple[int, int] | None = None
        self._around = steps.names.here
        self._path = steps.names.take(naming.step(name), Call(self._around.path, _LOOP, what))

    def __iter__(self) -> Items[T]:
        return self

    def __next__(self) -> T:
        self._check_caller()
        if self._item is not None:
            self._finished()()
        for item in self._source:
            if self._is_begun(item):
                return cast(T, item)
        self._steps.flush()
        raise StopIteration

    def __aiter__(self) -> Items[T]:
        return self

    async def __anext__(self) -> T:
        self._check_caller()
        if self._item is not None:
            await off_loop(self._finished())
        if not self._steps.is_loaded:
            await off_loop(self._steps.load)
        async for item in self._source:
            if self._is_begun(item):
                return cast(T, item)
        if self._steps.unwritten:
            await off_loop(self._steps.flush)
        raise StopAsyncIteration

    def __del__(self) -> None:
        """The loop was left: the item in hand is not finished."""
        item = getattr(self, "_item", None)
        if item is not None:
            scope.end(item)

    def _check_caller(self) -> None:
        caller = _caller()
        if self._by is None:
            self._by = caller
        if caller != self._by:
            raise BadStep(
                f"the loop {self._path!r} is asked for items by two threads or coroutines, and each would finish the"
                " other's: loop in one, and let it wait for what the others do with an item; or give each its own"
                " current.each(...), with its part of the items"
            )
        if self._steps.names.here.base is not self._around.base:
            raise BadStep(
                f"the loop {self._path!r} began outside of the step or transaction in which its next item is asked for:"
                " ask for it where the loop began"
            )

    def _is_begun(self, item: T) -> bool:
        """Unless an earlier run has finished it."""
        path = self._path_of(item)
        if self._steps.knows(naming.row(path)):
            return False
        self._steps.host.begins(f"an item of {self._path!r}")
        self._item = self._around.item(path)
        scope.begin(self._item)
        return True

    def _finished(self) -> Callable[[], None]:
        """The item in hand is finished: the next is asked for. Returns what is to be done about it."""
        item, self._item = self._item, None
        assert item is not None
        scope.end(item)
        self._steps.finished(item, self._around)
        self._unwritten += 1
        if self._unwritten < self._batch:
            return self._steps.host.progress
        self._unwritten = 0
        return self._steps.flush

    def _path_of(self, item: T) -> str:
        """Equal items are numbered."""
        try:
            label = canonical.label(item if self._key is None else self._key(item))
        except TypeError as error:
            raise BadStep(
                f"{self._path}: {error}; give each(key=...), a function that tells its items apart"
            ) from error
        number = self._seen[label] = self._seen.get(label, 0) + 1
        return naming.numbered(naming.item(self._path, label), number)


def _caller() -> tuple[int, int]:
    """The thread, and the task of asyncio."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return threading.get_ident(), id(task)  # gevent may put its own in place
