"""Deliver: outcomes that a foreign result backend, or an errback, is still owed are paid later, once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from argus_celery.flow.enqueue import Recorded, announce, past_rivals, record
from argus_celery.flow.publish import send
from argus_celery.flow.runtime import Runtime
from argus_celery.records import NewTask
from argus_celery.store import tasks
from argus_celery.store.tasks import Debt

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

Undelivered = Debt


def pending(rt: Runtime, limit: int = 100) -> list[Undelivered]:
    """Ended tasks whose outcome (and, for a dead letter, whose errbacks) are still owed."""
    return rt.store.statement(lambda connection: tasks.debts(connection, limit))


def done(rt: Runtime, task_id: str, token: int, continuations: Sequence[NewTask] = ()) -> bool:
    """Strike out the debt and record what it led to, in one transaction; False if another was first."""
    rt.window.note(rt.store, continuations)
    recorded = past_rivals(lambda: rt.store.transaction(lambda c: _settle(rt, c, task_id, token, continuations)))
    if recorded is None:
        return False
    if recorded.enqueued:
        announce(rt, continuations, recorded)
    send(rt, recorded.dispatches)
    return True


def _settle(
    rt: Runtime, connection: Connection, task_id: str, token: int, continuations: Sequence[NewTask]
) -> Recorded | None:
    if not tasks.settle(connection, task_id, token):
        return None
    return record(rt, connection, continuations, look=True) if continuations else Recorded()
