"""Replace: a task hands over to a canvas whose last task bears its id.

Where that is one task, its message is the row's next one. Else the row waits, unscheduled, until the last task is
published, which is recorded together with the completion that leads to it.
"""

from __future__ import annotations

from typing import Any

from celery import Celery

from argus_celery.hooks.attached import own_task
from argus_celery.hooks.durable import durable, is_durable_name
from argus_celery.hooks.outbox import execution_here

THEIRS, OURS = "celery.accumulate", "argus.accumulate"


def install(app: Celery) -> None:
    """Celery ends a replacing group by a task that only gathers; a durable one does it for durable tasks."""

    @durable
    @own_task(app, OURS)
    def accumulate(*parts: Any, **options: Any) -> Any:
        index = options.get("index")
        return parts[index] if index is not None else parts


def handing_on(cls: Any) -> Any:
    """``Task.on_replace`` that tells the run what becomes of its task."""
    theirs = cls.on_replace

    def on_replace(self: Any, signature: Any) -> Any:
        execution = execution_here()
        if execution is None or execution.claim.task_id != self.request.id:
            return theirs(self, signature)
        last = _last(signature)
        if last.get("task") == THEIRS:
            last["task"] = OURS
            last._type = None  # the task it was made of: Celery would ask it, not the name
        execution.handed_on = True
        execution.leaves_store = not is_durable_name(self.app, last.get("task") or "")
        with execution.collecting():
            return theirs(self, signature)

    return on_replace


def _last(signature: Any) -> Any:
    """The signature whose result is that of the whole."""
    while True:
        kind = signature.get("subtask_type")
        if kind == "chain":
            signature = signature["kwargs"]["tasks"][-1]
        elif kind == "chord":
            signature = signature["kwargs"]["body"]
        else:
            return signature
