"""Projects for asyncio: each call is the one of the same name without ``a``, and never blocks the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from argus_celery.errors import StoreUnavailable
from argus_celery.hooks.threads import in_thread
from argus_celery.store.outer import Outer, async_outer

if TYPE_CHECKING:
    from argus_celery.records import ProjectInfo, ProjectStatus


class AsyncCalls:
    """Mixed into ``Project``."""

    _argus: Any
    enqueue: Any
    enqueue_many: Any
    send: Any
    progress: Any
    _settled: Any

    def _pauses(self, timeout: float | None) -> Iterator[float]:
        raise NotImplementedError

    async def aenqueue(self, signature: Any, key: str | None = None, *, session: Any = None, **options: Any) -> Any:
        """``session``: an AsyncSession or AsyncConnection, in whose transaction the task is recorded."""
        given = {**options, "key": key, "session": self._outer(session)}
        return await in_thread(partial(self.enqueue, signature, **given))

    async def aenqueue_many(self, signatures: Iterable[Any], *, session: Any = None) -> list[Any]:
        """The same for many; the signatures are taken in another thread."""
        results: list[Any] = await in_thread(partial(self.enqueue_many, signatures, session=self._outer(session)))
        return results

    async def asend(self, event: str, payload: Any = None) -> bool:
        told: bool = await in_thread(partial(self.send, event, payload))
        return told

    async def aprogress(self) -> ProjectInfo:
        info: ProjectInfo = await in_thread(self.progress)
        return info

    async def ajoin(self, timeout: float | None = None) -> ProjectStatus:
        """Raises ``TimeoutError``. Cancelled, it only stops waiting."""
        for pause in self._pauses(timeout):
            await asyncio.sleep(pause)
            try:
                status: ProjectStatus | None = await in_thread(self._settled)
            except StoreUnavailable:
                continue
            if status is not None:
                return status
        raise AssertionError("unreachable")

    def _outer(self, session: Any) -> Outer | None:
        return None if session is None else async_outer(self._argus.runtime.store, session)
