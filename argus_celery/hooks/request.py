"""The main process's side of a durable task: what becomes of it when its child dies, its time is up or it is cancelled.

The store decides what runs again, so nothing here asks the broker to redeliver: messages are acked, and a message that
came without a token is recorded before.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from billiard.einfo import ExceptionInfo, ExceptionWithTraceback
from celery import signals
from celery.exceptions import Ignore, InvalidTaskError, Reject, Retry, Terminated, TimeLimitExceeded, WorkerLostError
from celery.states import FAILURE
from celery.utils.imports import symbol_by_name
from celery.worker import state
from celery.worker.request import Request, task_ready

from argus_celery.errors import LeaseLost, StoreError, StoreUnavailable
from argus_celery.flow.lapse import lapse
from argus_celery.hooks import adoption, ending, told
from argus_celery.hooks.durable import options_of
from argus_celery.hooks.errands import errands
from argus_celery.hooks.holder import holder
from argus_celery.hooks.revocable import MetRevoked, Revocable, signal_number
from argus_celery.hooks.timelimits import CutShort
from argus_celery.records import TOKEN_HEADER, TaskState
from argus_celery.store import leases

logger = logging.getLogger(__name__)

cut_off: set[told.Held] = set()
"""Claims of runs that this process has cut off: handed back when it ends, for then the bodies are over."""

RETURN_PAUSE = 2.0
"""Seconds after which a message that could not be recorded goes back to the broker."""


class DurableRequest(Revocable):
    """A delivery of a durable task, in the worker's main process."""

    def __init__(self, message: Any, *args: Any, headers: dict[str, Any] | None = None, **options: Any) -> None:
        headers = dict(message.headers if headers is None else headers)
        # Only the store judges when a task is due or too late; the task may still read both from its request.
        judged = {name: headers.pop(name) for name in ("eta", "expires") if name in headers}
        super().__init__(message, *args, headers=headers, **options)
        self._request_dict.update(judged)
        self.unrecorded = False
        self._already_revoked = self._already_cancelled = False
        self.ended = False
        self._set_token(self._token_of(message))

    # --- identity ------------------------------------------------------------------------------------------------

    @property
    def lease_ttl(self) -> float | None:
        return options_of(self.task).lease_ttl

    @property
    def progress_timeout(self) -> float | None:
        return options_of(self.task).progress_timeout

    def _token_of(self, message: Any) -> int:
        token = (message.headers or {}).get(TOKEN_HEADER)
        return token if isinstance(token, int) else self._adopt(message)

    def _set_token(self, token: int) -> None:
        self._request_dict[TOKEN_HEADER] = token

    # --- messages without a token --------------------------------------------------------------------------------

    def _adopt(self, message: Any) -> int:
        """Record a message that no Argus has sent, before anything can ack it; 0 if it is not to be run."""
        try:
            return adoption.adopt(self._argus.runtime, message, self)
        except (StoreUnavailable, StoreError):
            self.unrecorded = True
            return 0
        except Exception as error:  # anybody's message: it must not end the worker
            raise InvalidTaskError(f"{type(error).__name__}: {error}") from error

    def revoked(self) -> bool:
        """Also true for what is not to be given to the pool: it is known already, or could not be recorded yet, or the
        worker is about to stop. While a consumer is cancelled, what RabbitMQ has sent before still comes in, and the
        pool ``solo`` would run all of it first."""
        if self.claimed is not None and _is_stopping() and not self.acknowledged:
            task_ready(self)
            self.reject(True)
            return True
        if self.claimed is not None:
            state.revoked.discard(self.id)  # of ids the store decides, and it may have put the task back since
            return bool(super().revoked())
        if not self.acknowledged:
            task_ready(self)
            self._send_away()
        return True

    def _send_away(self) -> None:
        if self.unrecorded:
            logger.warning("argus: %s[%s] could not be recorded now and goes back to the broker", self.name, self.id)
            timer = threading.Timer(RETURN_PAUSE, self.reject, (True,))
            timer.daemon = True
            timer.start()
        else:
            self.acknowledge()

    # --- the pool reports ----------------------------------------------------------------------------------------

    def on_accepted(self, pid: int, time_accepted: float) -> None:
        super().on_accepted(pid, time_accepted)
        _watch_closely(self._apply_result and self._apply_result())

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> None:
        """A lost child is no failure, and an outcome is written once. See the table in ``_verdict``."""
        error = exc_info.exception
        error = error.exc if isinstance(error, ExceptionWithTraceback) else error
        verdict = self._verdict(error, return_ok)
        if verdict is None:
            super().on_failure(exc_info, send_failed_event, return_ok)
        else:
            task_ready(self)
            verdict(error, exc_info)

    def _verdict(self, error: BaseException, return_ok: bool) -> Callable[[Any, Any], None] | None:
        """What an error of the pool means; None leaves it to Celery, the run has written its outcome itself."""
        if isinstance(error, (Terminated, SystemExit, KeyboardInterrupt, WorkerLostError)):
            ours = self._already_cancelled or self._already_revoked
            return self._settle if ours else self._lost
        if isinstance(error, MemoryError):
            return self._failed_by_itself  # Celery would end the whole worker
        if isinstance(error, Reject):
            return self._settle if error.requeue else self._rejected
        if isinstance(error, MetRevoked):
            return self._met_revoked
        if isinstance(error, LeaseLost):
            return self._lease_lost
        if isinstance(error, CutShort):
            return self._cut_short
        if return_ok or isinstance(error, (Ignore, Retry)):
            return None
        return self._fail

    def _settle(self, _error: Any = None, _info: Any = None) -> None:
        """Nothing more is to be written: only the message is left."""
        self.acknowledge()

    def _rejected(self, error: BaseException, exc_info: Any) -> None:
        """The run has written that it failed."""
        self._announce_failure(error, exc_info)
        self.acknowledge()

    def _lost(self, error: BaseException, _info: Any) -> None:
        """The child is gone and its run with it. No FAILURE, no errback: another run is on its way, or it is dead."""
        logger.warning("argus: the process that ran %s[%s] is gone (%s)", self.name, self.id, error)
        why = repr(error) if isinstance(error, SystemExit) else error  # of which the text is a bare number
        errands.soon(lambda: self._lapse(f"the process {self.worker_pid} was lost: {why}"))

    def _lapse(self, detail: str) -> None:
        assert self.claimed is not None
        rt, (task_id, token) = self._argus.runtime, self.claimed
        became = lapse(rt, holder(), task_id, token, detail)
        if became is TaskState.DEAD:
            errands.soon(self._argus.pay_debts)
        if became is None:
            # Lost before its child could claim it: the message is used up, so the row goes back to the store.
            rt.store.transaction(lambda c: leases.give_back(rt.store, c, [(task_id, token - 1)], 0))
        self.acknowledge()

    def _cut_short(self, error: Any, _info: Any) -> None:
        self.on_timeout(False, error.timeout)

    def _failed_by_itself(self, _error: Any, exc_info: Any) -> None:
        self.acknowledge()
        self.send_event("task-failed", exception=repr(exc_info.exception), traceback=exc_info.traceback)

    def _fail(self, error: BaseException, exc_info: Any) -> None:
        """The run cannot write its outcome (time limit, a result that does not pickle): it fails once, from here."""
        if self.ended or self.claimed is None:
            return
        if state.should_terminate:
            cut_off.add(self.claimed)
        else:
            self.ended = True
            errands.soon(lambda: self._end_failed(error, exc_info))

    def _end_failed(self, error: BaseException, exc_info: Any) -> None:
        if ending.fail(self._argus, self, error, exc_info):
            with self._in_stack():
                self._call_handlers(error, exc_info)
                self._announce_failure(error, exc_info)
        self.acknowledge()

    def _call_handlers(self, error: BaseException, exc_info: Any) -> None:
        """The run itself cannot: it was cut short."""
        try:
            self.task.on_failure(error, self.id, self.args, self.kwargs, exc_info)
            self.task.after_return(FAILURE, error, self.id, self.args, self.kwargs, None)
        except Exception:
            logger.exception("argus: %s[%s] has failed; a handler of its failure raised", self.name, self.id)

    @contextmanager
    def _in_stack(self) -> Iterator[None]:
        self.task.request_stack.push(self._context)
        try:
            yield
        finally:
            self.task.request_stack.pop()

    def _announce_failure(self, error: BaseException, exc_info: Any) -> None:
        signals.task_failure.send(
            sender=self.task,
            task_id=self.id,
            exception=error,
            args=self.args,
            kwargs=self.kwargs,
            traceback=exc_info.traceback,
            einfo=exc_info,
        )
        self.send_event("task-failed", exception=repr(error), traceback=exc_info.traceback)

    def on_timeout(self, soft: bool, timeout: float) -> None:
        """A hard limit was, in prefork, reported to ``on_failure`` already; here it is the same one failure."""
        if soft:
            super().on_timeout(soft, timeout)
            return
        task_ready(self)
        logger.error("Hard time limit (%ss) exceeded for %s[%s]", timeout, self.name, self.id)
        try:
            raise TimeLimitExceeded(timeout)
        except TimeLimitExceeded as exceeded:
            error, exc_info = exceeded, ExceptionInfo()
        self._fail(error, exc_info)

    # --- the worker stops ------------------------------------------------------------------

    def cancel(self, pool: Any, signal: Any = None, emit_retry: bool = True) -> None:
        """Cut the run off because the worker stops; the claim is handed back when the process ends.

        A lost broker connection is no reason: the lease is held in the store, and the redelivered copy is refused.
        """
        if self.claimed is None or (self.task.acks_late and emit_retry):
            return
        self._already_cancelled = True
        cut_off.add(self.claimed)
        self.send_event("task-cancelled")
        if told.is_child(pool, self.worker_pid):
            pool.terminate_job(self.worker_pid, signal_number(signal))
        else:
            told.interrupt(self.claimed)


def _is_stopping() -> bool:
    return any(asked is not None and asked is not False for asked in (state.should_stop, state.should_terminate))


def _watch_closely(job: Any) -> None:
    """A blocking pool waits 10 s for a result of a child that has died; a durable task does not need the wait."""
    if hasattr(job, "_lost_worker_timeout"):
        job._lost_worker_timeout = min(job._lost_worker_timeout, 0.1)


class ArgusRequest(DurableRequest):
    """The request class of durable tasks that name none of their own."""


@cache
def request_class(base: str | type[Any]) -> type[Any]:
    """The durable request class on top of the one that a task has."""
    theirs: type[Any] = symbol_by_name(base)
    if issubclass(theirs, DurableRequest):
        return theirs
    if theirs is Request:
        return ArgusRequest
    return type(theirs.__name__, (DurableRequest, theirs), {})
