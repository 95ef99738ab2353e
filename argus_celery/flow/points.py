"""Durable points: instants just after a commit. ``argus_celery.testing`` kills there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum


class Kind(StrEnum):
    """What has just been committed."""

    ENQUEUE = "enqueue"
    """Tasks are recorded, and not published yet."""
    STEP = "step"
    ITEM = "item"
    """An item of ``each``, or a batch of them."""
    TRANSACTION = "transaction"
    WAIT = "wait"
    """The run gave its lease back until an instant or an event."""
    RETRY = "retry"
    COMPLETE = "complete"
    """The task has ended, and nobody was told yet."""


Listener = Callable[[Kind, str], None]

_listener: Listener | None = None


def listen(listener: Listener | None) -> None:
    """Call this at each point that this process, or a fork of it, reaches."""
    global _listener
    _listener = listener


def reached(kind: Kind, names: Iterable[str]) -> None:
    """This was committed: the steps, tasks or outcomes of these names."""
    if _listener is not None:
        _listener(kind, ", ".join(names))
