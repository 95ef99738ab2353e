"""SQLite and fork: the library keeps what it has locked in the process's memory, and a child inherits that memory.

A child forked while a thread of its parent writes believes for ever that the write lock is taken, by nobody. So a fork
waits until no thread is in the store, and the connections that lie idle are closed before it. Servers do not need this:
there a child only has to leave its parent's sockets alone.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE = 10.0
"""Seconds a fork waits at most: a child that may hang is better than a parent that does."""


class Gate:
    """Any number of threads may be inside at once; a fork closes it, waits until they are out, and opens it again."""

    def __init__(self, close_idle: Callable[[], None]) -> None:
        self._close_idle = close_idle
        self._reset()
        _gates.add(self)

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._inside: Counter[int] = Counter()
        self._forks = 0

    @contextmanager
    def inside(self) -> Iterator[None]:
        """For the time of one statement or transaction. A thread that is inside may enter again."""
        me = threading.get_ident()
        with self._changed:
            self._changed.wait_for(lambda: not self._forks or me in self._inside)
            self._inside[me] += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside[me] -= 1
                self._inside += Counter()
                self._changed.notify_all()

    def before_fork(self) -> None:
        with self._changed:
            self._forks += 1
            if threading.get_ident() in self._inside:
                return  # whoever forks inside a transaction has to leave the store alone in the child
            if self._changed.wait_for(lambda: not self._inside, PATIENCE):
                self._close_idle()

    def after_in_parent(self) -> None:
        with self._changed:
            self._forks -= 1
            self._changed.notify_all()

    def after_in_child(self) -> None:
        self._reset()


_gates: weakref.WeakSet[Gate] = weakref.WeakSet()


def _each(step: Callable[[Gate], None]) -> Callable[[], None]:
    def all_gates() -> None:
        for gate in list(_gates):
            step(gate)

    return all_gates


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_each(Gate.before_fork),
        after_in_parent=_each(Gate.after_in_parent),
        after_in_child=_each(Gate.after_in_child),
    )
