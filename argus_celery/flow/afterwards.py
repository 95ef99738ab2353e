"""What follows a commit: at once, or behind the commit of the user's transaction that is written into."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from argus_celery.flow.publish import send
from argus_celery.flow.runtime import Runtime
from argus_celery.records import Dispatch, Publish

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Noted:
    """What one call has left to do."""

    rt: Runtime
    dispatches: Sequence[Dispatch]
    tell: Callable[[], object]


def afterwards(
    rt: Runtime, dispatches: Sequence[Dispatch], tell: Callable[[], object], publish: Publish | None = None
) -> None:
    """Tell observers, and publish; a crash before or within is a lapse like any other.

    ``publish`` is good now only: behind another's commit the runtime's own is used.
    """
    outer = rt.store.outer
    if outer is not None:
        outer.then(deliver, Noted(rt, tuple(dispatches), tell))
        return
    tell()
    send(rt, dispatches, publish)


def deliver(notes: Sequence[Noted]) -> None:
    """All that a transaction has left, its messages in one go. Whoever commits must not meet an error of ours."""
    for note in notes:
        _safely(note.tell)
    for rt in {id(note.rt): note.rt for note in notes}.values():
        dispatches = [one for note in notes if note.rt is rt for one in note.dispatches]
        _safely(lambda rt=rt, dispatches=dispatches: send(rt, dispatches))  # type: ignore[misc]


def _safely(call: Callable[[], object]) -> None:
    try:
        call()
    except Exception:
        logger.exception("argus: what follows a commit failed; what is recorded is dispatched by the next sweep")
