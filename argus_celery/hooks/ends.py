"""The ends of a run that Celery leaves without an outcome: every claim comes to one."""

from __future__ import annotations

import logging
import os
from typing import Any

from celery.exceptions import Ignore, Reject, Retry, WorkerShutdown, WorkerTerminate
from celery.states import IGNORED, REJECTED, RETRY

from argus_celery.errors import LeaseLost
from argus_celery.flow.lapse import lapse
from argus_celery.flow.outage import wait_out
from argus_celery.hooks import outcome
from argus_celery.hooks.backend import is_foreign
from argus_celery.hooks.errands import errands
from argus_celery.hooks.holder import main_pid
from argus_celery.hooks.outbox import Execution
from argus_celery.records import TaskState

logger = logging.getLogger(__name__)

REQUEUE_PAUSE_MS = 1000


def settle(execution: Execution, task: Any, answer: Any) -> Any:
    """The tracer's answer; where it ended nothing, the run is ended now as the answer says."""
    info = answer.info
    if execution.settled or info is None or isinstance(info.retval, LeaseLost):
        return answer
    try:
        _end(execution, task, info)
    except LeaseLost as error:
        logger.warning("argus: %s", error)
    return answer


def _end(execution: Execution, task: Any, info: Any) -> None:
    if execution.successor is not None:
        execution.go_on("replaced" if info.state == IGNORED else f"went on after {info.state}")
    elif execution.handed_on and execution.leaves_store:
        execution.complete(outcome.silent(execution, TaskState.SUCCEEDED, "replaced by what is not durable"))
    elif execution.handed_on:
        execution.park()
    elif info.state == RETRY and isinstance(info.retval, Retry):
        execution.give_back("Retry was raised without retry()", _delay_ms(info.retval))
    elif info.state == REJECTED and isinstance(info.retval, Reject):
        _reject(execution, task, info.retval)
    elif info.state == IGNORED and isinstance(info.retval, Ignore):
        execution.complete(outcome.silent(execution, TaskState.SUCCEEDED, "the body raised Ignore"))


def _reject(execution: Execution, task: Any, error: Reject) -> None:
    if error.requeue:
        execution.give_back("the body raised Reject(requeue=True)", REQUEUE_PAUSE_MS)
        return
    # Celery wraps what went wrong in retry() in a Reject.
    reason = error.reason if isinstance(error.reason, BaseException) else error
    owed = is_foreign(task.backend) and not task.ignore_result
    execution.complete(outcome.failed(execution, task.app, reason, None, None, owed=owed))


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
    became = wait_out(lambda: lapse(rt, claim.holder, claim.task_id, claim.token, detail))
    logger.warning("argus: task %s is lost: %s", claim.task_id, detail)
    if became is TaskState.DEAD:
        errands.soon(execution.argus.pay_debts)


def _delay_ms(error: Retry) -> int:
    return round(error.when * 1000) if isinstance(error.when, (int, float)) else REQUEUE_PAUSE_MS
