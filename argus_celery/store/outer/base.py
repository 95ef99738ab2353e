"""Outer: a transaction that somebody else commits. While a call is *inside* it, the store writes there.

Each of the store's transactions is then a savepoint of it: what fails is undone alone, and leaves the user's own work
and their transaction as they were.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from argus_celery.store.engine import Store

T = TypeVar("T")

Deliver = Callable[[Sequence[Any]], None]
"""Is given, in order, what was noted in a transaction that has committed. Never raises."""


class Outer(ABC):
    """One transaction of the user's, on the database of ``store``."""

    def __init__(self, store: Store) -> None:
        self.store = store

    @property
    def is_over(self) -> bool:
        """Has it ended? A coroutine or thread that was begun inside it may go on behind it."""
        return False

    @abstractmethod
    def write(self, work: Callable[[Connection], T]) -> T:
        """Run ``work`` in a savepoint. ``DuplicateRow`` and missing tables are named; else errors are the driver's."""

    @abstractmethod
    def then(self, deliver: Deliver, entry: Any) -> None:
        """Note what is to be delivered when the transaction commits, and forgotten when it is rolled back."""

    def apart(self, call: Callable[[], T]) -> T:
        """Make a call that waits for another connection than the transaction's own."""
        return call()

    @contextmanager
    def inside(self) -> Iterator[None]:
        """What the store writes in this block is part of the transaction."""
        token = _here.set(self)
        try:
            yield
        finally:
            _here.reset(token)


_here: ContextVar[Outer | None] = ContextVar("argus_outer", default=None)


def outer_here() -> Outer | None:
    """The transaction that is written into here."""
    return _here.get()


@contextmanager
def outside() -> Iterator[None]:
    """In this block the store's transactions are its own again."""
    token = _here.set(None)
    try:
        yield
    finally:
        _here.reset(token)
