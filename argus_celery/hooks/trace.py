"""The claim: before Celery sees a run, its delivery is claimed or dropped.

Celery's tracer of a task stands in the attribute ``__trace__``, which every pool assigns. ``SLOT`` is a descriptor in
its place: it wraps whatever is assigned. A refused delivery is answered as Celery answers ``Ignore``: acked, no signal
of a run, no result, no callbacks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from inspect import getclosurevars, unwrap
from typing import Any

from billiard.einfo import ExceptionInfo
from celery.app import trace
from celery.app.task import Context
from celery.app.trace import TraceInfo, trace_ok_t
from celery.exceptions import Ignore, Reject
from celery.states import FAILURE, IGNORED, REJECTED

from argus_celery.errors import LeaseLost, StoreUnavailable, Suspended
from argus_celery.flow.claim import claim
from argus_celery.flow.complete import lost
from argus_celery.flow.progress import Progress
from argus_celery.flow.revoke import REVOKED, meet
from argus_celery.hooks import retrying
from argus_celery.hooks.attached import attached
from argus_celery.hooks.body import SuspendedRun, surround
from argus_celery.hooks.durable import options_of
from argus_celery.hooks.ends import exits_here, lose, settle
from argus_celery.hooks.holder import holder
from argus_celery.hooks.outbox import Execution, execution_here
from argus_celery.hooks.revocable import MetRevoked
from argus_celery.hooks.timelimits import CutShort, HardTimeLimit
from argus_celery.records import FIRST_TOKEN, TOKEN_HEADER, AttemptOutcome, Delivery
from argus_celery.run import in_hand, running
from argus_celery.store.reports import ClaimDetails

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
        hostname = getclosurevars(unwrap(tracer)).nonlocals.get("hostname")
    except TypeError:
        return tracer  # not Celery's: it is wrapped as it is
    # Asked of the module each time: Sentry and others put their own in its place, which wraps the run in a trace.
    fenced = trace.build_tracer(task.name, task, task.app.loader, hostname, Info=FencedInfo, app=task.app)
    surround(fenced)
    return fenced


class Claiming:
    """The tracer that the pool calls."""

    def __init__(self, task: Any, tracer: Any) -> None:
        self.task, self.tracer = task, tracer

    def __call__(self, task_id: str, args: Any, kwargs: Any, request: Mapping[str, Any] | None = None) -> Any:
        execution = self._claim(task_id, request or {})
        if not isinstance(execution, Execution):
            return ignored(execution)
        request = _as_delivered(execution, request or {})
        with _in_hand(execution):
            try:
                answer = self._traced(execution, task_id, args, kwargs, request)
                return settle(execution, self.task, Context(request, args=args, kwargs=kwargs), answer)
            except LeaseLost as error:
                return ignored(error)  # also thrown in as the body was being left

    def _claim(self, task_id: str, request: Mapping[str, Any]) -> Execution | Ignore:
        """The run, or why there is to be none."""
        token = request.get(TOKEN_HEADER)
        if not token:
            logger.warning("argus: a delivery of %s[%s] without a token was dropped", self.task.name, task_id)
            return Ignore("no token")
        argus, delivery = attached(self.task.app), Delivery(task_id, token)
        timeout = options_of(self.task).progress_timeout
        granted = claim(argus.runtime, holder(), [delivery], progress_timeout=timeout)[0]
        if granted is not None:
            turn = (request.get("replaced_task_nesting") or 0, request.get("retries") or 0)
            return Execution(
                argus.runtime, granted, argus=argus, greenlet=_greenlet(), turn=turn, shown=Progress(timeout)
            )
        with suppress(StoreUnavailable):  # then the next delivery meets it
            if meet(argus.runtime, [delivery]):
                return MetRevoked(REVOKED)
        return Ignore("stale delivery")

    def _traced(self, execution: Execution, task_id: str, args: Any, kwargs: Any, request: Any) -> Any:
        with execution.lock:
            execution.in_body = True
        try:
            if execution.lost.is_set():  # told before there was a body to stop
                raise lost(execution.claim)
            return self.tracer(task_id, args, kwargs, request)
        except Reject as error:
            # From a handler, after the outcome; solo would die of it.
            return ignored(Ignore(f"rejected: {error}")) if execution.settled else rejected(error)
        except LeaseLost as error:
            return ignored(error)
        except HardTimeLimit as error:
            return cut_short(error)
        except Suspended as error:
            if execution.settled:
                raise
            return ignored(SuspendedRun(str(error)))  # it did not come from the body itself
        except BaseException as error:
            if not exits_here(error):
                raise
            lose(execution, error)
            return ignored(Ignore("lost"))  # the error itself would end the worker
        finally:
            execution.leave_body()


def _as_delivered(execution: Execution, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """A message that a run has had in hand before says so, whichever copy of it the broker delivered."""
    where = request.get("delivery_info")
    first = execution.claim.token == FIRST_TOKEN + 1
    if first or where is None or not _came_back(execution.details):
        return request
    return {**request, "delivery_info": {**where, "redelivered": True}}


def _came_back(details: ClaimDetails | None) -> bool:
    previous = details.previous if details else None
    return previous is not None and previous.outcome in (AttemptOutcome.RELEASED, AttemptOutcome.LOST)


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
            if execution is not None and not execution.settled:
                execution.steps.flush()  # what a repeat need not do again
            if isinstance(self.retval, StoreUnavailable) and execution is not None and not execution.settled:
                return self._give_back(execution, self.retval)
            if execution is not None and not execution.settled:
                self.state, self.retval = retrying.one_end(execution, task, self.state, self.retval)
            call_errbacks = call_errbacks or self.state == FAILURE
            with _request_of(task, req):
                return super().handle_error_state(task, req, eager=eager, call_errbacks=call_errbacks)
        except LeaseLost as error:
            return self._lost(error)

    def handle_ignore(self, task: Any, req: Any, **options: Any) -> Any:
        """Of a run that waits is logged what it waits for."""
        if not isinstance(self.retval, SuspendedRun):
            super().handle_ignore(task, req, **options)

    def handle_retry(self, task: Any, req: Any, store_errors: bool = True, **options: Any) -> Any:
        execution = execution_here()
        if execution is not None and not execution.settled:
            retrying.go_on(execution, task, req, self.retval, tell=store_errors)
            store_errors = False
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


@contextmanager
def _request_of(task: Any, req: Any) -> Iterator[None]:
    """Celery has taken it off the task when it ends a run for an error outside the body, as of a callback."""
    task.request_stack.push(req)
    try:
        yield
    finally:
        task.request_stack.pop()


def ignored(error: BaseException) -> Any:
    """What a tracer answers for a delivery that is dropped."""
    return trace_ok_t(_raised(error), TraceInfo(IGNORED, error), 0.0, None)


def rejected(error: BaseException) -> Any:
    return trace_ok_t(_raised(error), TraceInfo(REJECTED, error), 0.0, None)


def cut_short(error: HardTimeLimit) -> Any:
    """The run writes nothing: it is failed as one that its pool has cut off (``hooks.request``)."""
    exceeded = CutShort(error.timeout)
    return trace_ok_t(_raised(exceeded), TraceInfo(FAILURE, exceeded), 0.0, None)


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
