"""The main process's side of a revoke: the store has the say, a run in hand is told or killed, observers hear once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from billiard.common import TERM_SIGNAME
from celery import signals
from celery.exceptions import Ignore
from celery.platforms import signals as platform_signals
from celery.utils.collections import LimitedSet
from celery.worker import state
from celery.worker.request import Request, task_ready

from argus_celery.flow.revoke import REVOKED, cancelled, revoke
from argus_celery.hooks import told
from argus_celery.hooks.attached import attached
from argus_celery.hooks.backend import is_foreign
from argus_celery.hooks.errands import errands
from argus_celery.records import TOKEN_HEADER

said_revoked = LimitedSet(maxlen=10_000, expires=3600)
"""Claims whose revocation observers of this worker have heard of: the broker may bring a message twice."""


KILL = 9


class MetRevoked(Ignore):
    """What the pool answers for a delivery that was refused because its task is revoked."""


class Revocable(Request):
    """A delivery whose task may be revoked."""

    _already_revoked: bool

    @property
    def claimed(self) -> told.Held | None:
        """The claim that a run of this delivery holds: the message's token, plus one."""
        token = self._request_dict.get(TOKEN_HEADER)
        return (self.id, token + 1) if token else None

    @property
    def _argus(self) -> Any:
        return attached(self.app)

    # --- Celery's own ways ---

    def terminate(self, pool: Any, signal: Any = None) -> None:
        """End the task as cancelled and then its run; a child that went on to another task is left alone."""
        if self.time_start is None:
            super().terminate(pool, signal)
            return
        signum = signal_number(signal)
        errands.soon(lambda: self._end_revoked("terminated", partial(self._kill, pool, signum), signum))

    def _announce_revoked(self, reason: str, terminated: bool, signum: Any, expired: bool) -> None:
        """Celery has met it in its memory of revoked stamps, before it was given to the pool."""
        task_ready(self)
        if not self._already_revoked:
            self._already_revoked = True
            errands.soon(lambda: self._end_revoked(reason, None, signum))

    def _end_revoked(self, reason: str, end_run: Callable[[], None] | None, signum: Any) -> None:
        revoke(self._argus.runtime, [self.id], reason)
        if self.claimed is not None and cancelled(self._argus.runtime, [self.claimed]):
            self.stop_revoked(end_run, killed=end_run is not None, signum=signum)
        else:
            self.acknowledge()

    # --- what the pool answers ---

    def _met_revoked(self, _error: Any, _info: Any) -> None:
        self.stop_revoked(None)

    def _lease_lost(self, _error: Any, _info: Any) -> None:
        self.acknowledge()
        errands.soon(self._look_if_revoked)

    def _look_if_revoked(self) -> None:
        """The run is over: whatever state it told the user's backend last, the last word is that it was revoked."""
        if self.claimed is not None and cancelled(self._argus.runtime, [self.claimed]):
            self.stop_revoked(None)
            if is_foreign(self.task.backend):
                self.task.backend.mark_as_revoked(self.id, REVOKED, self._context, self.store_errors)

    # --- the end of it ---

    def stop_revoked(self, end_run: Callable[[], None] | None, *, killed: bool = False, signum: Any = None) -> None:
        """The store has ended the task: a run in hand is told or killed, and observers hear of it, once."""
        self._already_revoked = True
        in_pool = self in state.active_requests
        if end_run is not None and in_pool:
            end_run()
        if killed or not in_pool:
            task_ready(self)
            self.acknowledge()
        self._say_revoked(terminated=killed, signum=signum)

    def _say_revoked(self, *, terminated: bool, signum: Any) -> None:
        if self.claimed not in said_revoked:
            said_revoked.add(self.claimed)
            self.send_event("task-revoked", terminated=terminated, signum=signum, expired=False)
            signals.task_revoked.send(
                sender=self.task, request=self._context, terminated=terminated, signum=signum, expired=False
            )

    def tell(self, pool: Any) -> None:
        """Tell the run of this request to stop."""
        if self.claimed is not None:
            told.tell(self.claimed, pool, self.worker_pid)

    def kill(self, pool: Any) -> None:
        """End its child, if it is a child's; else it can only be told."""
        if told.is_child(pool, self.worker_pid):
            pool.terminate_job(self.worker_pid, KILL)
        else:
            self.tell(pool)

    def _kill(self, pool: Any, signum: int) -> None:
        if told.is_child(pool, self.worker_pid):
            pool.terminate_job(self.worker_pid, signum)
        elif self.claimed is not None:
            told.interrupt(self.claimed)


def signal_number(signal: Any) -> int:
    return int(platform_signals.signum(signal or TERM_SIGNAME))
