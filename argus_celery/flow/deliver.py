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


def pending(rt: Runtime, limit: int = 100, grace_ms: int = 0) -> list[Undelivered]:
    """Ended tasks whose outcome (and, for a dead letter, whose errbacks) are still owed.

    Within the grace, a run that has just ended is left to pay by itself.
    """
    return rt.store.statement(lambda connection: tasks.debts(rt.store, connection, limit, grace_ms))


def give_way(rt: Runtime, debt: Undelivered) -> None:
    """It could not be paid now: others that were tried less often come first."""
    rt.store.transaction(lambda connection: tasks.give_way(connection, debt.task_id, debt.token))


def strike_out(rt: Runtime, paid: Sequence[tuple[str, int]]) -> None:
    """These (task, token) debts are paid; nothing follows from it."""

    def write(connection: Connection) -> None:
        for task_id, token in sorted(paid):
            tasks.settle(connection, task_id, token)

    rt.store.transaction(write)


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
