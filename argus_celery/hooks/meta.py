"""What Celery reads of a task, made from its row."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from celery import states
from celery.exceptions import TaskRevokedError

from argus_celery.errors import TaskAbandoned, TaskDead
from argus_celery.records import TaskState
from argus_celery.store.results import FORGOTTEN, ResultRow

Decode = Callable[[bytes], dict[str, Any]]

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
_ENDS = {
    states.SUCCESS: TaskState.SUCCEEDED,
    states.FAILURE: TaskState.FAILED,
    states.REVOKED: TaskState.CANCELLED,
}


def kept_as(state: str) -> TaskState:
    """What a row says whose task is not durable and was last heard of in this state."""
    return _ENDS.get(state, TaskState.RUNNING)


def meta_of(task_id: str, row: ResultRow | None, decode: Decode) -> dict[str, Any]:
    """Status, result, traceback and children of a task; PENDING if it is not known, or was forgotten."""
    if row is None or row.result == FORGOTTEN:
        return {"task_id": task_id, "status": states.PENDING, "result": None}
    if row.result is not None:
        return {**decode(row.result), "task_id": task_id}
    if row.state.ended:
        return _ended(task_id, row)
    return _alive(task_id, row, None if row.said is None else decode(row.said))


def _ended(task_id: str, row: ResultRow) -> dict[str, Any]:
    """Without a result: it never ran to its end, or nobody wanted one."""
    at = None if row.finished_at is None else datetime.fromtimestamp(row.finished_at / 1000, UTC).isoformat()
    meta = {"status": _STATES[row.state], "result": _error(row), "traceback": None, "children": [], "date_done": at}
    return {"task_id": task_id, **meta}


def _alive(task_id: str, row: ResultRow, said: dict[str, Any] | None) -> dict[str, Any]:
    state = states.RETRY if row.retries and _STATES[row.state] == states.PENDING else _STATES[row.state]
    if said is not None and _is_true(said["status"], row.state):
        return {**said, "task_id": task_id}
    return {"task_id": task_id, "status": state, "result": None, "traceback": None, "children": []}


def _is_true(status: str, state: TaskState) -> bool:
    """A run may call itself anything but at an end, and what is to run again in a retry nothing else."""
    if state is TaskState.RUNNING:
        return status != states.RETRY and status not in states.READY_STATES
    return bool(status == states.RETRY)


def _error(row: ResultRow) -> Exception | None:
    if row.state is TaskState.DEAD:
        return TaskDead(row.error)
    if row.state in (TaskState.CANCELLED, TaskState.EXPIRED):
        return TaskRevokedError(row.error)
    if row.state is TaskState.FAILED:
        return TaskAbandoned(row.error) if row.abandoned else Exception(row.error)
    return None
