"""The transaction of SQLAlchemy's asynchronous sessions, joined from a thread while its event loop goes on.

All that may block happens in the thread; only statements of the user's connection go to the loop, one at a time, while
whoever has called waits for the thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy.util import await_only

from argus_celery.errors import BadTransaction
from argus_celery.store.outer.alchemy import AlchemyOuter, connection_of
from argus_celery.store.outer.base import Deliver, Outer

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from argus_celery.store.engine import Store

T = TypeVar("T")


class AsyncOuter(Outer):
    """Of an ``AsyncSession``, an ``async_scoped_session`` or an ``AsyncConnection``, whose loop is this one."""

    def __init__(self, store: Store, session: Any, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(store)
        self.session, self.loop = session, loop

    def write(self, work: Callable[[Connection], T]) -> T:
        return self._in_loop(lambda joined: joined.write(work))

    def then(self, deliver: Deliver, entry: Any) -> None:
        self._in_loop(lambda joined: joined.then(partial(_in_thread, self.loop, deliver), entry))

    def _in_loop(self, call: Callable[[AlchemyOuter], T]) -> T:
        def in_greenlet(session: Any) -> T:
            joined = JoinedOuter(self.store, connection_of(session), self.loop)
            with joined.inside():
                return call(joined)

        done: T = asyncio.run_coroutine_threadsafe(self.session.run_sync(in_greenlet), self.loop).result()
        return done


class JoinedOuter(AlchemyOuter):
    """In the loop's own thread, which must not wait for a connection of ours."""

    def __init__(self, store: Store, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        super().__init__(store, connection)

    def apart(self, call: Callable[[], T]) -> T:
        done: T = await_only(self.loop.run_in_executor(None, copy_context().run, call))
        return done


def _in_thread(loop: asyncio.AbstractEventLoop, deliver: Deliver, entries: Sequence[Any]) -> None:
    """Publishing blocks, and the commit is the loop's."""
    loop.run_in_executor(None, deliver, entries)


def asynchronous_of(session: Any) -> Any:
    """The session itself; ``BadTransaction`` if it blocks: such a one is not another thread's to use."""
    session = session() if hasattr(session, "session_factory") else session  # of the asyncio task that asks
    if hasattr(session, "sync_session") or hasattr(session, "sync_connection"):
        return session
    raise BadTransaction(
        f"session= takes an AsyncSession or AsyncConnection here, not {type(session).__name__}: with that, call enqueue"
        " in the thread that it belongs to"
    )
