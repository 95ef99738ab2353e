"""Replace: a task whose body hands over to a canvas, the last task of which bears the id of the one that is replaced.

The row waits, unscheduled, for that last task; its message then becomes the row's, and the row goes on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from argus_celery.flow import retry, steer
from argus_celery.flow.runtime import Runtime
from argus_celery.hooks.outbox import Execution
from argus_celery.records import NOBODY, Claim, NewTask
from argus_celery.store import reports

NESTING = "replaced_task_nesting"
FAR = 2**52
"""An instant in the far future, in milliseconds."""


def wait_for_successor(execution: Execution, message: NewTask) -> None:
    """End this run; its task waits until something is published under its id."""
    execution.successor = replace(message, delay_ms=None, due_at=FAR)
    execution.go_on("replaced")


def hand_over(rt: Runtime, task: NewTask, message: Any) -> bool:
    """Was this the last task of a replacement? Then the waiting row goes on with it."""
    if not task.message.headers.get(NESTING):
        return False
    row = reports.task_info(rt.store, task.id)
    if row is None or row.state.ended or row.holder != NOBODY:
        return False
    project_id = steer.open_project(rt, row.project)
    retry.retry(rt, Claim(task.id, row.token, NOBODY, project_id, 0, 0.0), task, "replaced")
    return True
