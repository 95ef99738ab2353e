"""Retry: what ``retry()``, ``retry(throw=False)`` and a ``Retry`` raised by hand mean for a durable task.

A run has one end. If it has asked for a retry it ends as retried, whatever it returns or raises after that; the outcome
is left to the run that follows.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any

from billiard.einfo import ExceptionInfo
from celery.exceptions import Reject, Retry
from celery.states import FAILURE, RETRY
from kombu.exceptions import EncodeError

from argus_celery.hooks import outcome
from argus_celery.hooks.backend import is_foreign
from argus_celery.hooks.outbox import Execution

logger = logging.getLogger(__name__)


class GoesOn(EncodeError):
    """The body has returned, but asked for a retry before. The tracer hands an ``EncodeError`` to ``FencedInfo``."""


def one_end(execution: Execution, task: Any, state: str, error: Any) -> tuple[str, Any]:
    """How a run that did not succeed ends: retried if it has asked for that, else as Celery says."""
    if execution.successor is None and state == RETRY:
        try:
            _as_by_retry(execution, task, error)
        except Reject as refused:
            return FAILURE, refused.reason if isinstance(refused.reason, Exception) else refused
        except Exception as exceeded:
            return FAILURE, exceeded
    if execution.successor is None or state == RETRY:
        return state, error
    return RETRY, Retry("retry(throw=False)", None if isinstance(error, GoesOn) else error)


def _as_by_retry(execution: Execution, task: Any, error: Retry) -> None:
    """Celery notes a ``Retry`` raised by hand and sends nothing; here it is what ``retry()`` would have made of it."""
    when: Any = {"eta": error.when} if isinstance(error.when, datetime) else {"countdown": error.when}
    given = {} if error.sig is None else {"args": tuple(error.sig.args), "kwargs": dict(error.sig.kwargs)}
    asked = task.retry(exc=error.exc, throw=False, **when, **given)
    if execution.successor is None:
        # The task's own apply_async has kept it back, as that of celery-singleton does for the lock the task holds.
        task.app.send_task(asked.sig.task, asked.sig.args, asked.sig.kwargs, **asked.sig.options)


def go_on(execution: Execution, task: Any, request: Any, error: Retry, *, tell: bool) -> None:
    """Store the new message, and that it is a retry. Another result backend is told before the message is sent, so that
    no later state is overwritten.
    """
    theirs = task.backend.theirs
    traceback = ExceptionInfo().traceback
    if not tell or not is_foreign(theirs):
        said = outcome.retried(task.app, error.exc, traceback, request) if tell else None
        execution.go_on(str(error), retried=True, said=said)
        return

    def told() -> None:
        try:
            theirs.mark_as_retry(request.id, error.exc, traceback, request=request)
        except Exception:
            logger.exception("argus: %s is retried; telling the result backend failed", request.id)

    execution.go_on(str(error), told, retried=True)
