"""The ends of a run that Celery leaves without an outcome: every claim comes to one."""

from __future__ import annotations

import logging
import os
from typing import Any

from celery.app.task import get_actual_ignore_result
from celery.exceptions import Ignore, Reject, WorkerShutdown, WorkerTerminate
from celery.states import IGNORED, REJECTED, SUCCESS

from argus_celery.errors import LeaseLost
from argus_celery.flow.lapse import lapse
from argus_celery.flow.outage import wait_out
from argus_celery.hooks import outcome
from argus_celery.hooks.errands import errands
from argus_celery.hooks.fence import Fenced
from argus_celery.hooks.holder import main_pid
from argus_celery.hooks.outbox import Execution
from argus_celery.hooks.parts import part_of
from argus_celery.records import TaskState

logger = logging.getLogger(__name__)

REQUEUE_PAUSE_MS = 1000


def settle(execution: Execution, task: Any, request: Any, answer: Any) -> Any:
    """The tracer's answer; where it ended nothing, the run is ended now as the answer says, or raises ``LeaseLost``."""
    info = answer.info
    if execution.settled or info is None or isinstance(info.retval, LeaseLost):
        return answer
    try:
        _end(execution, task, request, info)
    except LeaseLost as error:
        logger.warning("argus: %s", error)
        raise
    return answer


def _end(execution: Execution, task: Any, request: Any, info: Any) -> None:
    if execution.waits.reached is not None:
        execution.suspend(execution.waits.reached)
        logger.info("argus: %s[%s] is suspended: it %s", task.name, request.id, execution.waits.reached)
    elif execution.successor is not None:
        execution.go_on("replaced" if info.state == IGNORED else f"went on after {info.state}", retried=False)
    elif execution.handed_on and execution.leaves_store:
        execution.complete(outcome.silent(execution, TaskState.SUCCEEDED, "replaced by what is not durable"))
    elif execution.handed_on:
        execution.park()
    elif info.state == REJECTED and isinstance(info.retval, Reject):
        _reject(execution, task, request, info.retval)
    elif info.state == IGNORED and isinstance(info.retval, Ignore):
        # Celery would let a chord wait for ever for this part.
        part = part_of(task.app, request, SUCCESS, None)
        execution.complete(outcome.ignored(execution, "the body raised Ignore", part))


def _reject(execution: Execution, task: Any, request: Any, error: Reject) -> None:
    """Rejected for good is failed: errbacks, chord and result follow. Celery says so in the main process."""
    if error.requeue:
        execution.give_back("the body raised Reject(requeue=True)", REQUEUE_PAUSE_MS)
        return
    # Celery wraps what went wrong in retry() in a Reject.
    reason = error.reason if isinstance(error.reason, BaseException) else error
    keep = task.store_errors_even_if_ignored or not get_actual_ignore_result(task, request)
    Fenced(task.app, task.backend, execution).mark_as_failure(request.id, reason, None, request, keep)


def exits_here(error: BaseException) -> bool:
    """Did the body leave a process that has no pool children: threads, solo, greenlets? (A child just dies of it.)"""
    leaves = isinstance(error, SystemExit) or type(error).__name__ == "GreenletExit"
    ours = isinstance(error, (WorkerShutdown, WorkerTerminate))
    return leaves and not ours and os.getpid() == main_pid()


def lose(execution: Execution, error: BaseException) -> None:
    """The run has left without an end: it is lost, as one whose process died."""
    execution.leave_body()
    execution.settled = True
    detail = f"the body raised {error!r}"
    claim, rt = execution.claim, execution.rt
    became = wait_out(lambda: lapse(rt, claim.holder, claim.task_id, claim.token, detail, died=False))
    logger.warning("argus: task %s is lost: %s", claim.task_id, detail)
    if became is TaskState.DEAD:
        errands.soon(execution.argus.pay_debts)
