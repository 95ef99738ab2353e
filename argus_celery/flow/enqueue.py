"""Enqueue: record tasks, commit, and publish what is due and fits the window. The rest waits in the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from argus_celery import signals
from argus_celery.errors import ProjectClosed, StoreUnavailable
from argus_celery.flow import steer
from argus_celery.flow.checks import check
from argus_celery.flow.publish import send
from argus_celery.flow.requeue import take_over
from argus_celery.flow.runtime import Runtime
from argus_celery.records import NOBODY, QUEUE, Dispatch, Enqueued, NewTask, ProjectStatus, Publish
from argus_celery.store import leases, projects, tasks
from argus_celery.store.engine import DuplicateRow
from argus_celery.store.envelope import seal

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

T = TypeVar("T")

BATCH = 500


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one transaction recorded, in the order given, and the messages to publish after its commit."""

    enqueued: tuple[Enqueued, ...] = ()
    dispatches: tuple[Dispatch, ...] = ()


def enqueue(rt: Runtime, new: Sequence[NewTask], publish: Publish | None = None) -> list[Enqueued]:
    """Record tasks and publish them; a known id or key returns the first task. One transaction per 500.

    Raises ``BadTask``, ``PayloadTooLarge`` and ``ProjectClosed`` before anything is written; ``StoreUnavailable`` with
    nothing published.
    """
    check(rt, new)
    placed = [_in_project(rt, task) for task in new]
    enqueued: list[Enqueued] = []
    for start in range(0, len(placed), BATCH):
        batch = placed[start : start + BATCH]
        recorded = _commit(rt, batch)
        announce(rt, batch, recorded)
        send(rt, recorded.dispatches, publish)
        enqueued += recorded.enqueued
    return enqueued


def adopt(rt: Runtime, new: NewTask) -> int:
    """Record a message that came without a token as (queue, 1), or as scheduled; 0 if its delivery is to be refused."""
    check(rt, [new])
    recorded = _commit(rt, [_in_project(rt, new)], adopted=True)
    announce(rt, [new], recorded)
    return recorded.enqueued[0].token if recorded.enqueued[0].created else 0


def _in_project(rt: Runtime, task: NewTask) -> NewTask:
    if task.project_id is not None:
        return task
    return replace(task, project_id=steer.open_project(rt, task.project or rt.settings.default_project))


def _commit(rt: Runtime, batch: Sequence[NewTask], *, adopted: bool = False) -> Recorded:
    """A rival's same key, or a commit whose answer was lost, is met by looking before the second try."""

    def write(look: bool) -> Recorded:
        return rt.store.transaction(lambda connection: record(rt, connection, batch, look=look, adopted=adopted))

    rt.window.note(rt.store, batch)
    look = adopted or any(task.key is not None for task in batch)
    try:
        return write(look)
    except (DuplicateRow, StoreUnavailable):
        return past_rivals(lambda: write(look=True))


def record(
    rt: Runtime, connection: Connection, batch: Sequence[NewTask], *, look: bool = False, adopted: bool = False
) -> Recorded:
    """Insert the rows of new tasks in the caller's transaction. With ``look``, known ids and keys are found first."""
    found = projects.shared(rt.store, connection, {_project_id(task) for task in batch})
    known = _known(connection, batch) if look else {}
    fresh: dict[str, NewTask] = {}
    enqueued: list[Enqueued] = []
    direct: dict[str, bool] = {}
    out: list[Dispatch] = []
    for task in batch:
        first = known.get((_project_id(task), task.key)) or known.get(task.id) if known else None
        if first is not None:
            successor = take_over(rt, connection, task)
            if successor is not None:
                out += successor
                enqueued.append(Enqueued(first.id, created=False, token=0))
                continue
            enqueued.append(Enqueued(first.id, created=False, token=0, differs=_differs(first, task)))
            continue
        twin = _twin(fresh, task)
        if twin is not None:
            enqueued.append(Enqueued(twin.id, created=False, token=0, differs=twin.message.body != task.message.body))
            continue
        _check_open(found.get(_project_id(task)), task)
        fresh[task.id] = task
        direct[task.id] = _goes_out(rt, connection, task, paused=found[_project_id(task)].paused, adopted=adopted)
        enqueued.append(Enqueued(task.id, created=True, token=int(direct[task.id])))
    if fresh:
        tasks.insert(rt.store, connection, [_task_row(rt, task) for task in fresh.values()])
        rows = [_lease_row(rt, task, direct[task.id], found[_project_id(task)].paused) for task in fresh.values()]
        leases.insert(rt.store, connection, rows)
    if not adopted:
        out += [Dispatch(t.id, 1, t.message) for t in fresh.values() if direct[t.id]]
    return Recorded(tuple(enqueued), tuple(out))


def past_rivals(transaction: Callable[[], T]) -> T:
    """Repeat a transaction that looks before it inserts, if a rival inserted in between."""
    for _ in range(3):
        try:
            return transaction()
        except DuplicateRow:
            continue
    return transaction()


def announce(rt: Runtime, batch: Sequence[NewTask], recorded: Recorded) -> None:
    """Tell observers what was created; after the commit."""
    if signals.task_enqueued.receivers:
        for task, enqueued in zip(batch, recorded.enqueued, strict=True):
            if enqueued.created:
                signals.task_enqueued.send(
                    sender=rt.store.app_name, task_id=task.id, name=task.name, project_id=task.project_id, key=task.key
                )


def _project_id(task: NewTask) -> int:
    assert task.project_id is not None
    return task.project_id


def _known(connection: Connection, batch: Sequence[NewTask]) -> dict[Any, tasks.Known]:
    keys = [(_project_id(task), task.key) for task in batch if task.key is not None]
    known: dict[Any, tasks.Known] = {}
    for task in tasks.known(connection, [task.id for task in batch], keys):
        known[task.id] = task
        if task.key is not None:
            known[task.project_id, task.key] = task
    return known


def _twin(fresh: dict[str, NewTask], task: NewTask) -> NewTask | None:
    """The same id or key earlier in this very batch."""
    if task.id in fresh:
        return fresh[task.id]
    if task.key is None:
        return None
    place = (task.project_id, task.key)
    return next((other for other in fresh.values() if (other.project_id, other.key) == place), None)


def _differs(first: tasks.Known, task: NewTask) -> bool:
    return first.name != task.name or first.body != task.message.body


def _check_open(project: projects.Project | None, task: NewTask) -> None:
    if project is None:
        raise ProjectClosed(f"the project of {task.name}[{task.id}] is gone (pruned): enqueue it in a new one")
    allowed = project.status.live if task.inside else project.status is ProjectStatus.OPEN
    if not allowed:
        raise ProjectClosed(f"project {project.name!r} is {project.status}: it takes no more tasks from outside")


def _goes_out(rt: Runtime, connection: Connection, task: NewTask, *, paused: bool, adopted: bool) -> bool:
    if paused or (task.delay_ms or 0) > 0 or task.due_at is not None:
        return False
    return adopted or rt.window.take(rt.store, connection, rt.settings.dispatch_window, task.message.queue)


def _task_row(rt: Runtime, task: NewTask) -> dict[str, Any]:
    envelope, body = seal(task.message)
    return {
        "id": task.id,
        "project_id": task.project_id,
        "name": task.name,
        "key": task.key,
        "queue": task.message.queue,
        "priority": task.priority,
        "message": envelope,
        "body": body,
        "max_losses": task.max_losses or rt.settings.max_losses,
        "parent_id": task.parent_id,
        "root_id": task.root_id,
        "group_id": task.group_id,
    }


def _lease_row(rt: Runtime, task: NewTask, direct: bool, paused: bool) -> dict[str, Any]:
    return {
        "task_id": task.id,
        "project_id": task.project_id,
        "queue": task.message.queue,
        "priority": task.priority,
        "token": int(direct),
        "holder": QUEUE if direct else NOBODY,
        "delay": rt.dispatch_ttl_ms if direct else (task.delay_ms or 0),
        "due_at": task.due_at,
        "expires_in": task.expires_in_ms,
        "expires_at_abs": task.expires_at,
        "ttl": task.lease_ttl_ms or rt.lease_ttl_ms,
        "paused": int(paused),
        "dispatches": int(direct),
    }
