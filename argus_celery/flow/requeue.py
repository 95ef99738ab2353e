"""Dispatching one's own rows within the transaction that gave them up, so that a hand-over costs no sweep."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from argus_celery.flow.admit import admit, give_up
from argus_celery.flow.runtime import Runtime
from argus_celery.records import QUEUE, Dispatch, NewTask, TaskState
from argus_celery.store import leases, projects, tasks
from argus_celery.store.leases import Lease
from argus_celery.store.projects import Project
from argus_celery.store.tasks import Ending

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

PROJECT_CANCELLED = "the project was cancelled"


def dispatch_own(
    rt: Runtime, connection: Connection, ids: Collection[str], slots: Collection[str] = ()
) -> list[Dispatch]:
    """Hand those of these rows that are due now to the queue; they had a place in its window before.

    What is not to run any more (cancelled, expired) is left to the next dispatch, which ends it. ``slots``: which of
    them had slots of a limit; those that do not go out leave them to others.
    """
    rows = leases.due_of(rt.store, connection, ids) if ids else []
    found = projects.read(connection, {row.project_id for row in rows})
    going = [row for row in rows if _goes_on(found.get(row.project_id), row)]
    out = to_queue(rt, connection, admit(rt, connection, going, keeps=bool(slots)))
    left = set(slots) - {row.task_id for row in going}
    return [*out, *to_queue(rt, connection, give_up(rt, connection, left))] if left else out


def _goes_on(project: Project | None, row: Lease) -> bool:
    return project is not None and project.status.live and not project.paused and not row.expired


def go_on_as(
    rt: Runtime,
    connection: Connection,
    task: NewTask,
    *,
    retried: bool,
    ran: bool,
    said: bytes | None = None,
    limited: bool = False,
) -> list[Dispatch]:
    """The locked row of this id gets another message and due time, and goes out if that is now."""
    id_, queue = task.id, task.message.queue
    tasks.replace_message(
        connection, id_, task.name, queue, task.priority, task.message, retried=retried, ran=ran, said=said
    )
    leases.requeue_as(rt.store, connection, task)
    leases.hand_back(rt.store, connection, [id_], task.delay_ms or 0, task.due_at)
    return dispatch_own(rt, connection, [id_], [id_] if limited else [])


def take_over(rt: Runtime, connection: Connection, task: NewTask) -> list[Dispatch] | None:
    """A replaced task waits for this, its successor's message: it goes on with it. None if it does not wait."""
    if not task.takes_over or not leases.lock_parked(rt.store, connection, [task.id]):
        return None
    return go_on_as(rt, connection, task, retried=False, ran=False)


def to_queue(rt: Runtime, connection: Connection, rows: Sequence[Lease]) -> list[Dispatch]:
    """Hand these locked rows to the queue; returns the messages to publish after the commit, in order."""
    if not rows:
        return []
    leases.hand_to_queue(rt.store, connection, rows, rt.dispatch_ttl_ms, rt.dispatch_ttl_max_ms)
    messages = tasks.messages(connection, [row.task_id for row in rows])
    return [Dispatch(row.task_id, token_when_queued(row), messages[row.task_id]) for row in rows]


def token_when_queued(row: Lease) -> int:
    """The token rises unless the queue held the row already: nobody was granted anything since."""
    return row.token if row.holder == QUEUE else row.token + 1


def unrun(rt: Runtime, row: Lease, state: TaskState, why: str) -> Ending:
    """The outcome of a task that ends while nobody runs it."""
    return Ending(
        row.task_id,
        row.token,
        state,
        why,
        undelivered=rt.foreign_results,
        follows=row.follows,
        leads=row.leads,
        limited=row.limited,
        alarms=row.project_id if row.alarms and state is TaskState.EXPIRED else None,
    )
