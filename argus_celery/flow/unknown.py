"""Unknown: a worker without a task's code has got its message. It stays claimable for those that have the code, for a
time: a task that nobody knows any more becomes a dead letter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from argus_celery import signals
from argus_celery.flow import alarm
from argus_celery.flow.end import end, follow_up
from argus_celery.flow.runtime import Runtime
from argus_celery.flow.wake import Released
from argus_celery.records import TaskState
from argus_celery.store import leases
from argus_celery.store.tasks import Ending

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

NOBODY_KNEW = "no worker that took it knew the task"


def hand_on(rt: Runtime, task_id: str, token: int, pause_ms: int) -> TaskState | None:
    """Leave the message to another worker, after the pause; ``DEAD`` once ``argus_unknown_deadline`` is over.

    ``None``: the queue does not hold it under this token (any more). A claim begins the deadline anew.
    """
    noted = rt.store.transaction(lambda connection: _write(rt, connection, task_id, token, pause_ms))
    if noted is None:
        return None
    ending, released = noted
    if ending is None:
        return TaskState.WAITING
    follow_up(rt, released)
    signals.task_dead.send(sender=rt.store.app_name, task_id=task_id, token=token, losses=0, reason=ending.error)
    alarm.meet(rt, released.alarms)
    return TaskState.DEAD


def _write(
    rt: Runtime, connection: Connection, task_id: str, token: int, pause_ms: int
) -> tuple[Ending | None, Released] | None:
    noted = leases.note_unknown(rt.store, connection, task_id, token)
    if noted is None:
        return None
    unknown_ms, row = noted
    deadline_ms = rt.unknown_deadline_ms
    if deadline_ms is None or unknown_ms < deadline_ms:
        leases.give_back(rt.store, connection, [(task_id, token)], pause_ms)
        return None, Released()
    reason = f"{NOBODY_KNEW} for {unknown_ms // 1000} s (argus_unknown_deadline): deploy its code, then retry it"
    alarms = row.project_id if row.alarms else None
    ending = Ending(
        task_id, token, TaskState.DEAD, reason, follows=True, leads=row.leads, limited=row.limited, alarms=alarms
    )
    return ending, end(rt, connection, [ending])
