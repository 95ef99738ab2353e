"""The ends of a run that Celery leaves without an outcome: every claim comes to one."""

from __future__ import annotations

import logging
from typing import Any

from celery.exceptions import Ignore, Reject, Retry
from celery.states import IGNORED, REJECTED, RETRY

from argus_celery.errors import LeaseLost
from argus_celery.hooks import outcome
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
    execution.complete(outcome.failed(execution, task.app, reason, None, None))


def _delay_ms(error: Retry) -> int:
    return round(error.when * 1000) if isinstance(error.when, (int, float)) else REQUEUE_PAUSE_MS
