"""What a coroutine gets of a step or a wait. It is named when it is called, and begins when it is awaited."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any


class Awaited(Coroutine[Any, Any, Any]):
    """A coroutine that is made when it begins, and until then is noted as not awaited."""

    def __init__(
        self,
        call: str,
        unawaited: dict[object, str],
        make: Callable[[], Coroutine[Any, Any, Any]],
        dropped: Callable[[], object] = lambda: None,
    ) -> None:
        self.__name__ = self.__qualname__ = call
        self._unawaited, self._make, self._dropped = unawaited, make, dropped
        self._mark = object()
        """Outlives this: what nobody refers to any more was not awaited either."""
        self._inner: Coroutine[Any, Any, Any] | None = None
        unawaited[self._mark] = call

    def __await__(self) -> Generator[Any, Any, Any]:
        return self  # an iterator with send and throw is what a generator is here

    def __iter__(self) -> Awaited:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        return self._begun().send(value)

    def throw(self, *error: Any) -> Any:
        return self._stopped().throw(*error)

    def close(self) -> None:
        self._stopped().close()

    def _begun(self) -> Coroutine[Any, Any, Any]:
        if self._inner is None:
            del self._unawaited[self._mark]
            self._inner = self._make()
        return self._inner

    def _stopped(self) -> Coroutine[Any, Any, Any]:
        if self._inner is None:
            self._dropped()
        return self._begun()
