"""The main process's side of a durable task: what becomes of it when its child dies, its time is up or it is cancelled.

The store decides what runs again, so nothing here asks the broker to redeliver: messages are acked, and a message that
came without a token is recorded before.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

from billiard.einfo import ExceptionInfo, ExceptionWithTraceback
from celery import signals
from celery.exceptions import Ignore, InvalidTaskError, Reject, Retry, Terminated, TimeLimitExceeded, WorkerLostError
from celery.platforms import signals as platform_signals
from celery.utils.imports import symbol_by_name
from celery.worker import state
from celery.worker.request import Request, task_ready

from argus_celery.errors import StoreError, StoreUnavailable
from argus_celery.flow.lapse import lapse
from argus_celery.hooks import adoption, ending, told
from argus_celery.hooks.attached import attached
from argus_celery.hooks.durable import options_of
from argus_celery.hooks.errands import errands
from argus_celery.hooks.holder import holder
from argus_celery.records import TOKEN_HEADER, TaskState
from argus_celery.store import leases

logger = logging.getLogger(__name__)

cut_off: set[told.Held] = set()
"""Claims of runs that this process has cut off: handed back when it ends, for then the bodies are over."""

RETURN_PAUSE = 2.0
"""Seconds after which a message that could not be recorded goes back to the broker."""


class DurableRequest(Request):
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
    def claimed(self) -> told.Held | None:
        """The claim that a run of this delivery holds: the message's token, plus one."""
        token = self._request_dict.get(TOKEN_HEADER)
        return (self.id, token + 1) if token else None

    @property
    def lease_ttl(self) -> float | None:
        return options_of(self.task).lease_ttl

    @property
    def _argus(self) -> Any:
        return attached(self.app)

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
        """Also true for what is not to be given to the pool: it is known already, or could not be recorded yet."""
        if self.claimed is not None:
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
            return self._settle
        if return_ok or isinstance(error, (Ignore, Retry)):
            return None
        return self._fail

    def _settle(self, _error: Any = None, _info: Any = None) -> None:
        """Nothing more is to be written: only the message is left."""
        self.acknowledge()

    def _lost(self, error: BaseException, _info: Any) -> None:
        """The child is gone and its run with it. No FAILURE, no errback: another run is on its way, or it is dead."""
        logger.warning("argus: the process that ran %s[%s] is gone (%s)", self.name, self.id, error)
        errands.soon(lambda: self._lapse(f"the process {self.worker_pid} was lost: {error}"))

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
        self.acknowledge()

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

    # --- the worker stops, or the task is revoked ------------------------------------------------------------------

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
            pool.terminate_job(self.worker_pid, _signal_number(signal))
        else:
            told.interrupt(self.claimed)

    def terminate(self, pool: Any, signal: Any = None) -> None:
        """End the task as cancelled and then its run; a child that went on to another task is left alone."""
        if self.time_start is None:
            super().terminate(pool, signal)
            return

        def kill() -> None:
            if told.is_child(pool, self.worker_pid):
                pool.terminate_job(self.worker_pid, _signal_number(signal))
            elif self.claimed is not None:
                told.interrupt(self.claimed)

        self._revoke("terminated", kill, terminated=True, signum=_signal_number(signal))

    def _announce_revoked(self, reason: str, terminated: bool, signum: Any, expired: bool) -> None:
        task_ready(self)
        self._revoke(reason, None, terminated=terminated, signum=signum)

    def _revoke(self, reason: str, then: Callable[[], None] | None, *, terminated: bool, signum: Any) -> None:
        if not self._already_revoked:
            self._already_revoked = True
            errands.soon(lambda: self._end_revoked(reason, then, terminated, signum))

    def _end_revoked(self, reason: str, then: Callable[[], None] | None, terminated: bool, signum: Any) -> None:
        if ending.cancel(self._argus, self, reason):
            if then is not None:
                then()
            task_ready(self)
            self.send_event("task-revoked", terminated=terminated, signum=signum, expired=False)
            signals.task_revoked.send(
                sender=self.task, request=self._context, terminated=terminated, signum=signum, expired=False
            )
        self.acknowledge()


def _signal_number(signal: Any) -> int:
    return int(platform_signals.signum(signal or "TERM"))


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
