"""Many signatures at once: each is sent as Celery would; what is to be recorded is collected and recorded together."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from argus_celery.flow import enqueue
from argus_celery.records import Enqueued, NewTask

logger = logging.getLogger(__name__)

collected: ContextVar[list[NewTask] | None] = ContextVar("argus_collected", default=None)
"""While this is a list, what would be recorded at once is put there instead (``publish``)."""


def apply_all(argus: Any, signatures: Sequence[Any]) -> list[Any]:
    """Apply each, record all in one transaction per batch, publish; returns the results in order."""
    with _collecting() as tasks:
        results = [signature.apply_async() for signature in signatures]
    enqueued = enqueue.enqueue(argus.runtime, tasks)
    first = {task.id: one for task, one in zip(tasks, enqueued, strict=True) if not one.created}
    for task, one in zip(tasks, enqueued, strict=True):
        warn_of_difference(task, one)
    return [_lead_to_first(argus.app, result, first) for result in results]


@contextmanager
def _collecting() -> Iterator[list[NewTask]]:
    tasks: list[NewTask] = []
    token = collected.set(tasks)
    try:
        yield tasks
    finally:
        collected.reset(token)


def warn_of_difference(task: NewTask, enqueued: Enqueued) -> None:
    """A key that is used again with other arguments: the first wins."""
    if enqueued.differs:
        logger.warning(
            "argus: %s with key %r was enqueued before with other arguments; the first, %s, stands",
            task.name,
            task.key,
            enqueued.task_id,
        )


def _lead_to_first(app: Any, result: Any, first: dict[str, Enqueued]) -> Any:
    known = first.get(result.id)
    return result if known is None else app.AsyncResult(known.task_id)
