"""Many signatures at once: each is sent as Celery would; what is to be recorded is collected and recorded together."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from argus_celery.flow import enqueue
from argus_celery.hooks.alike import Calls
from argus_celery.hooks.deliver import request_of
from argus_celery.hooks.outbox import execution_here
from argus_celery.records import Enqueued, NewTask

logger = logging.getLogger(__name__)

collected: ContextVar[list[NewTask] | None] = ContextVar("argus_collected", default=None)
"""While this is a list, what would be recorded at once is put there instead (``publish``)."""


def apply_all(argus: Any, signatures: Sequence[Any]) -> list[Any]:
    """Apply each, record all in one transaction per batch, publish; returns the results in order."""
    with collecting() as tasks:
        calls = Calls(argus.app, argus.runtime, tasks)
        results = [calls.apply(signature) for signature in signatures]
    enqueued = enqueue.enqueue(argus.runtime, tasks)
    first = {task.id: one for task, one in zip(tasks, enqueued, strict=True) if not one.created}
    for task, one in zip(tasks, enqueued, strict=True):
        warn_of_difference(argus.app, task, one)
    return [_lead_to_first(argus.app, result, first) for result in results]


@contextmanager
def collecting() -> Iterator[list[NewTask]]:
    """What durable calls inside the block would record at once."""
    tasks: list[NewTask] = []
    token = collected.set(tasks)
    try:
        yield tasks
    finally:
        collected.reset(token)


def warn_of_difference(app: Any, task: NewTask, enqueued: Enqueued) -> None:
    """A key or id that is used again with other arguments, or a child's place in its parent: the first wins."""
    if not enqueued.differs:
        return
    known = f"with key {task.key!r}" if enqueued.task_id != task.id else f"with id {task.id}"
    if task.key is None and (execution := execution_here()) is not None:
        # Where it stands in a canvas, its message also tells who of the two processes waits for the results.
        request = request_of(app, task.message)
        if execution.warned or request.chain or request.chord:
            return
        execution.warned = True
        known = "under this id (the body does not repeat itself)"
    logger.warning(
        "argus: %s was enqueued before %s as another task or with other arguments; the first, %s, stands",
        task.name,
        known,
        enqueued.task_id,
    )


def _lead_to_first(app: Any, result: Any, first: dict[str, Enqueued]) -> Any:
    known = first.get(result.id)
    return result if known is None else app.AsyncResult(known.task_id)
