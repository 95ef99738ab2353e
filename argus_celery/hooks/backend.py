"""``argus://``: the task row itself as Celery's result backend."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from celery import states
from celery.backends.base import BaseBackend, DisabledBackend
from celery.exceptions import ImproperlyConfigured, TaskRevokedError, TimeoutError
from kombu.utils.encoding import ensure_bytes

from argus_celery.errors import StoreUnavailable, TaskDead
from argus_celery.flow.keep import keep
from argus_celery.hooks.attached import attached
from argus_celery.records import TaskState
from argus_celery.store import reports
from argus_celery.store.reports import ResultRow

SHORTEST_PAUSE = 0.005
LONGEST_PAUSE = 0.25

_STATES = {
    TaskState.WAITING: states.PENDING,
    TaskState.QUEUED: states.PENDING,
    TaskState.RUNNING: states.STARTED,
    TaskState.SUCCEEDED: states.SUCCESS,
    TaskState.FAILED: states.FAILURE,
    TaskState.DEAD: states.FAILURE,
    TaskState.CANCELLED: states.REVOKED,
    TaskState.EXPIRED: states.REVOKED,
}
_KEPT = {
    states.SUCCESS: TaskState.SUCCEEDED,
    states.FAILURE: TaskState.FAILED,
    states.REVOKED: TaskState.CANCELLED,
}


def is_foreign(backend: Any) -> bool:
    """Is this a result backend that has to be told, beside the store?"""
    return not isinstance(backend, (ArgusBackend, DisabledBackend))


class ArgusBackend(BaseBackend):
    """Results are written with the task's completion, in the same transaction; here they are read.

    States of a task's own (``update_state``) are not kept.
    """

    persistent = True
    supports_autoexpire = True

    def __init__(self, app: Any, **options: Any) -> None:
        super().__init__(app, **options)
        try:
            self._argus = attached(app)
        except LookupError as error:
            raise ImproperlyConfigured("result_backend is argus://, which needs Argus(app)") from error

    # --- writing ---------------------------------------------------------------------------------------------------

    def document(self, result: Any, state: str, traceback: Any, request: Any) -> bytes:
        """What is kept of an outcome in the task row. Raises ``EncodeError``."""
        result = self.encode_result(result, state)
        return bytes(ensure_bytes(self.encode(self._get_result_meta(result, state, traceback, request))))

    def _store_result(
        self, task_id: str, result: Any, state: str, traceback: Any = None, request: Any = None, **options: Any
    ) -> None:
        """Of durable tasks the completion has stored everything already; the results of others are kept."""
        if state in _KEPT:
            name = getattr(request, "task", None) or ""
            document = bytes(ensure_bytes(self.encode(self._get_result_meta(result, state, traceback, request))))
            keep(self._argus.runtime, task_id, name, _KEPT[state], document)

    def exception_safe_to_retry(self, exc: BaseException) -> bool:
        return isinstance(exc, StoreUnavailable)

    # --- reading ---------------------------------------------------------------------------------------------------

    def _get_task_meta_for(self, task_id: str) -> dict[str, Any]:
        row = reports.results(self._argus.runtime.store, [task_id]).get(task_id)
        return {"task_id": task_id, **self._meta(row)}

    def _meta(self, row: ResultRow | None) -> dict[str, Any]:
        if row is None:
            return {"status": states.PENDING, "result": None}
        if row.result is not None:
            meta: dict[str, Any] = self.decode_result(row.result)
            return meta
        return {"status": _state(row), "result": _error(row), "traceback": None, "children": []}

    def wait_for(
        self,
        task_id: str,
        timeout: float | None = None,
        interval: float = 0.5,
        no_ack: bool = True,
        on_interval: Callable[[], Any] | None = None,
    ) -> dict[str, Any]:
        """Look again after 5 ms, then less and less often, at least four times a second."""
        self._ensure_not_eager()
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = SHORTEST_PAUSE
        while True:
            meta: dict[str, Any] = self.get_task_meta(task_id)
            if meta["status"] in states.READY_STATES:
                return meta
            if on_interval:
                on_interval()
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError("The operation timed out.")
            left = pause if deadline is None else max(0.0, min(pause, deadline - time.monotonic()))
            time.sleep(left * random.uniform(0.8, 1.0))
            pause = min(pause * 1.5, LONGEST_PAUSE)

    def _forget(self, task_id: str) -> None:
        """A row is kept until it is pruned."""


def _state(row: ResultRow) -> str:
    state: str = _STATES[row.state]
    return states.RETRY if state == states.PENDING and row.retries else state


def _error(row: ResultRow) -> Exception | None:
    if row.state is TaskState.DEAD:
        return TaskDead(row.error)
    if row.state in (TaskState.CANCELLED, TaskState.EXPIRED):
        return TaskRevokedError(row.error)
    if row.state is TaskState.FAILED:
        return Exception(row.error)
    return None
