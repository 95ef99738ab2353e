"""Abandon: what can never come, because what leads to it failed, is ended and not left waiting."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from argus_celery import signals
from argus_celery.flow.end import end, follow_up
from argus_celery.flow.runtime import Runtime
from argus_celery.flow.wake import Released
from argus_celery.records import TaskState
from argus_celery.store import leases
from argus_celery.store.leases import Lease
from argus_celery.store.tasks import Ending

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection


def abandon(rt: Runtime, task_ids: Collection[str], error: str, result: bytes | None) -> None:
    """Fail those of these tasks that were replaced and wait for successors, which will not come.

    Who asks has to tell what follows them; a second time changes nothing. Raises ``StoreUnavailable``.
    """
    waiting = rt.store.statement(lambda connection: leases.parked(connection, task_ids)) if task_ids else []
    if not waiting:
        return
    ended, released = rt.store.transaction(lambda connection: _end(rt, connection, waiting, error, result))
    follow_up(rt, released)
    for row in ended:
        sender = rt.store.app_name
        signals.task_failed.send(sender=sender, task_id=row.task_id, token=row.token, error=error)
        signals.task_completed.send(sender=sender, task_id=row.task_id, token=row.token, state=TaskState.FAILED)


def _end(
    rt: Runtime, connection: Connection, task_ids: Collection[str], error: str, result: bytes | None
) -> tuple[list[Lease], Released]:
    rows = leases.lock_parked(rt.store, connection, task_ids)
    how = Ending("", 0, TaskState.FAILED, error, result, abandoned=True)
    endings = [replace(how, task_id=row.task_id, token=row.token, leads=row.leads, limited=row.limited) for row in rows]
    return rows, end(rt, connection, endings)
