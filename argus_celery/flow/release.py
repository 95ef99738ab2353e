"""Release: a worker that stops gives its claims back, and their messages go out again at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from argus_celery import signals
from argus_celery.flow.publish import send
from argus_celery.flow.requeue import dispatch_own
from argus_celery.flow.runtime import Runtime
from argus_celery.records import AttemptOutcome, Dispatch
from argus_celery.store import attempts, leases, tasks

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection


def release(rt: Runtime, holder: str, claims: Sequence[tuple[str, int]], detail: str, delay_ms: int = 0) -> list[str]:
    """Give these (task, token) claims back; returns the tasks that were still held. They are due in the place they had,
    or after ``delay_ms``.

    No loss is charged. Raises ``StoreUnavailable`` at once: the leases then lapse by themselves.
    """
    if not claims:
        return []
    released, ours = rt.store.transaction(lambda c: _write(rt, c, holder, claims, detail, delay_ms))
    send(rt, ours)
    for task_id, token in claims:
        if task_id in released:
            signals.lease_released.send(sender=rt.store.app_name, task_id=task_id, token=token, holder=holder)
    return released


def _write(
    rt: Runtime, connection: Connection, holder: str, claims: Sequence[tuple[str, int]], detail: str, delay_ms: int
) -> tuple[list[str], list[Dispatch]]:
    rows = leases.lock_held(rt.store, connection, holder, claims)
    ids = [row.task_id for row in rows]
    if not ids:
        return [], []
    started = [row.task_id for row in rows if row.started]
    if started:
        attempts.append(rt.store, connection, started, AttemptOutcome.RELEASED, detail)
        tasks.note_attempt(connection, started)
    if delay_ms:
        leases.hand_back(rt.store, connection, ids, delay_ms)
    else:
        leases.put_back(connection, ids)
    return ids, dispatch_own(rt, connection, ids, [row.task_id for row in rows if row.limited])
