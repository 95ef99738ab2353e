"""The claim: before Celery sees a run, its delivery is claimed or dropped.

Celery's tracer of a task stands in the attribute ``__trace__``, which every pool assigns. ``SLOT`` is a descriptor in
its place: it wraps whatever is assigned. A refused delivery is answered as Celery answers ``Ignore``: acked, no signal
of a run, no result, no callbacks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from inspect import getclosurevars
from typing import Any

from billiard.einfo import ExceptionInfo
from celery.app.trace import TraceInfo, build_tracer, trace_ok_t
from celery.exceptions import Ignore, Reject
from celery.states import IGNORED, REJECTED

from argus_celery.context import in_hand, running
from argus_celery.errors import LeaseLost, StoreUnavailable
from argus_celery.flow.claim import claim
from argus_celery.hooks.attached import attached
from argus_celery.hooks.ends import exits_here, lose, settle
from argus_celery.hooks.holder import holder
from argus_celery.hooks.outbox import Execution, execution_here
from argus_celery.records import TOKEN_HEADER, Delivery

logger = logging.getLogger(__name__)

_TRACER = "_argus_tracer"


class Slot:
    """Data descriptor for ``Task.__trace__``."""

    def __get__(self, task: Any, cls: Any = None) -> Any:
        return None if task is None else task.__dict__.get(_TRACER)

    def __set__(self, task: Any, tracer: Any) -> None:
        task.__dict__[_TRACER] = tracer and Claiming(task, _fenced(task, tracer))


SLOT = Slot()


def _fenced(task: Any, tracer: Any) -> Any:
    """Celery's tracer once more, with an ``Info`` that knows a lost lease from a failure."""
    if isinstance(tracer, Claiming):
        return tracer.tracer
    try:
        hostname = getclosurevars(tracer).nonlocals.get("hostname")
    except TypeError:
        return tracer  # not Celery's: it is wrapped as it is
    return build_tracer(task.name, task, task.app.loader, hostname, Info=FencedInfo, app=task.app)


class Claiming:
    """The tracer that the pool calls."""

    def __init__(self, task: Any, tracer: Any) -> None:
        self.task, self.tracer = task, tracer

    def __call__(self, task_id: str, args: Any, kwargs: Any, request: Mapping[str, Any] | None = None) -> Any:
        execution = self._claim(task_id, request or {})
        if execution is None:
            return ignored(Ignore("stale delivery"))
        with _in_hand(execution):
            try:
                return settle(execution, self.task, self._traced(execution, task_id, args, kwargs, request))
            except LeaseLost as error:
                return ignored(error)  # thrown in as the body was being left

    def _claim(self, task_id: str, request: Mapping[str, Any]) -> Execution | None:
        token = request.get(TOKEN_HEADER)
        if not token:
            logger.warning("argus: a delivery of %s[%s] without a token was dropped", self.task.name, task_id)
            return None
        argus = attached(self.task.app)
        granted = claim(argus.runtime, holder(), [Delivery(task_id, token)])[0]
        return None if granted is None else Execution(argus.runtime, granted, argus=argus, greenlet=_greenlet())

    def _traced(self, execution: Execution, task_id: str, args: Any, kwargs: Any, request: Any) -> Any:
        with execution.lock:
            execution.in_body = True
        try:
            return self.tracer(task_id, args, kwargs, request)
        except Reject as error:
            return rejected(error)  # from a handler, after the outcome; solo would die of it
        except LeaseLost as error:
            return ignored(error)
        except BaseException as error:
            if not exits_here(error):
                raise
            lose(execution, error)
            return ignored(Ignore("lost"))  # the error itself would end the worker
        finally:
            execution.leave_body()


@contextmanager
def _in_hand(execution: Execution) -> Iterator[None]:
    held = (execution.claim.task_id, execution.claim.token)
    running[held] = execution
    before = in_hand.set(execution)
    try:
        yield
    finally:
        with execution.lock:
            execution.ended = True
        in_hand.reset(before)
        running.pop(held, None)


class FencedInfo(TraceInfo):
    """How a run that did not succeed is ended: a lost lease writes nothing, and is neither failure nor retry."""

    state: str
    retval: Any

    def handle_error_state(self, task: Any, req: Any, eager: bool = False, call_errbacks: bool = True) -> Any:
        execution = execution_here()
        if execution is not None:
            execution.leave_body()
        if isinstance(self.retval, LeaseLost):
            return self._lost(self.retval)
        try:
            if isinstance(self.retval, StoreUnavailable) and execution is not None and not execution.settled:
                return self._give_back(execution, self.retval)
            return super().handle_error_state(task, req, eager=eager, call_errbacks=call_errbacks)
        except LeaseLost as error:
            return self._lost(error)

    def handle_retry(self, task: Any, req: Any, store_errors: bool = True, **options: Any) -> Any:
        execution = execution_here()
        if execution is not None and not execution.settled and execution.successor is not None:
            execution.go_on(str(self.retval))
        return super().handle_retry(task, req, store_errors=store_errors, **options)

    def _give_back(self, execution: Execution, error: StoreUnavailable) -> ExceptionInfo:
        """The body met the store away, say when it enqueued: no failure of the task, which runs again."""
        logger.warning("argus: %s met an outage of the store and will run again: %s", execution.claim.task_id, error)
        execution.give_back(f"the store was away: {error}")
        self.state, self.retval = IGNORED, Ignore(str(error))
        return _raised(self.retval)

    def _lost(self, error: LeaseLost) -> ExceptionInfo:
        self.state, self.retval = IGNORED, error
        return _raised(error)


def ignored(error: BaseException) -> Any:
    """What a tracer answers for a delivery that is dropped."""
    return trace_ok_t(_raised(error), TraceInfo(IGNORED, error), 0.0, None)


def rejected(error: BaseException) -> Any:
    return trace_ok_t(_raised(error), TraceInfo(REJECTED, error), 0.0, None)


def _raised(error: BaseException) -> ExceptionInfo:
    try:
        raise error
    except type(error):
        return ExceptionInfo(internal=True)


def _greenlet() -> Any:
    """The greenlet of this run under gevent and eventlet; the main greenlet of a thread is none."""
    try:
        from greenlet import getcurrent
    except ImportError:
        return None
    here = getcurrent()
    return here if here.parent is not None else None
