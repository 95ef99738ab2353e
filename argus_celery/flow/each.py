"""Each: a loop that goes on, in a later run, with the first item that was not finished."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar, cast

from argus_celery.errors import BadStep
from argus_celery.flow import canonical, scope
from argus_celery.flow.off_loop import off_loop
from argus_celery.flow.scope import Scope
from argus_celery.flow.step import Steps

T = TypeVar("T")


async def _awaited(items: Iterator[Any]) -> AsyncIterator[Any]:
    for item in items:
        yield item


_LOOP = ("argus_celery", "current.each", 0)
"""In place of the function of a step."""


class Each(Generic[T]):
    """The iterator that ``current.each`` gives. One loop, in one thread."""

    def __init__(
        self,
        steps: Steps | None,
        iterable: Iterable[T] | AsyncIterable[T],
        name: str,
        batch: int,
        key: Callable[[T], Any] | None,
    ) -> None:
        if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
            raise BadStep(f"each(batch=...) must be a whole number of at least 1, not {batch!r}")
        self._steps, self._batch, self._key = steps, batch, key
        self._is_async = hasattr(iterable, "__aiter__")
        self._source: Any = aiter(iterable) if isinstance(iterable, AsyncIterable) else iter(iterable)
        self._item: Scope | None = None
        self._seen: dict[str, int] = {}
        if steps is not None:
            self._around = steps.names.here
            self._name = steps.names.take(name, _LOOP)

    def __iter__(self) -> Each[T]:
        if self._is_async:
            raise BadStep(f"each: loop over {self._source!r:.100} with  async for")
        return self

    def __next__(self) -> T:
        steps = self._steps
        if steps is None:
            return cast(T, next(self._source))
        if self._item is not None:
            self._finished(steps)()
        for item in self._source:
            if self._is_begun(steps, item):
                return cast(T, item)
        steps.flush()
        raise StopIteration

    def __aiter__(self) -> Each[T]:
        if not self._is_async:
            self._is_async, self._source = True, _awaited(self._source)
        return self

    async def __anext__(self) -> T:
        steps = self._steps
        if steps is None:
            return cast(T, await anext(self._source))
        if self._item is not None:
            await off_loop(self._finished(steps))
        if not steps.is_loaded:
            await off_loop(steps.load)
        async for item in self._source:
            if self._is_begun(steps, item):
                return cast(T, item)
        if steps.unwritten:
            await off_loop(steps.flush)
        raise StopAsyncIteration

    def __del__(self) -> None:
        """The loop was left: the item in hand is not finished."""
        if getattr(self, "_item", None) is not None:
            self._leave()

    def _is_begun(self, steps: Steps, item: T) -> bool:
        """Unless an earlier run has finished it."""
        path = self._path(item)
        if steps.knows(path):
            return False
        steps.host.begins(f"an item of {self._name!r}")
        self._item = self._around.item(path)
        scope.move(self._around, self._item)
        return True

    def _finished(self, steps: Steps) -> Callable[[], None]:
        """The item in hand is finished: the next is asked for. Returns what is to be done about it."""
        item = self._leave()
        steps.unwritten[item.path] = None
        if self._around is steps.names.root:
            steps.names.give_back(item)  # its path does not come again
        else:
            item.taken.add(item.path)
        return steps.flush if len(steps.unwritten) >= self._batch else steps.host.progress

    def _leave(self) -> Scope:
        item, self._item = self._item, None
        assert item is not None
        scope.move(item, self._around)
        return item

    def _path(self, item: T) -> str:
        """Equal items are numbered."""
        try:
            label = canonical.label(item if self._key is None else self._key(item))
        except TypeError as error:
            raise BadStep(
                f"{self._name}: {error}; give each(key=...), a function that tells its items apart"
            ) from error
        number = self._seen[label] = self._seen.get(label, 0) + 1
        return scope.numbered(scope.fitting(f"{self._name}[{label}]"), number)
