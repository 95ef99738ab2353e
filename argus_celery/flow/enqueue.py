"""Enqueue: record tasks, commit, and publish what is due and fits the window. The rest waits in the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from argus_celery import signals
from argus_celery.errors import KeyConflict, ProjectClosed, ProjectPruned, StoreUnavailable
from argus_celery.flow import after, points, steer
from argus_celery.flow.after import Links
from argus_celery.flow.afterwards import afterwards
from argus_celery.flow.checks import check
from argus_celery.flow.come_back import AS_SET, bring_back
from argus_celery.flow.end import follow_up, wake_after
from argus_celery.flow.entry import Entry
from argus_celery.flow.requeue import take_over
from argus_celery.flow.runtime import Runtime
from argus_celery.flow.wake import Released
from argus_celery.records import NOBODY, QUEUE, Dispatch, Enqueued, Message, NewTask, ProjectStatus, Publish, TaskState
from argus_celery.store import bounds, chords, entering, leases, projects, tasks
from argus_celery.store.engine import DuplicateRow
from argus_celery.store.envelope import seal
from argus_celery.store.projects import Project

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

T = TypeVar("T")

BATCH = 500


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one transaction recorded, in the order given, and the messages to publish after its commit."""

    enqueued: tuple[Enqueued, ...] = ()
    dispatches: tuple[Dispatch, ...] = ()
    released: Released = field(default_factory=Released)
    """What became of tasks that come after one that had failed already."""


def enqueue(rt: Runtime, new: Sequence[NewTask], publish: Publish | None = None) -> list[Enqueued]:
    """Record tasks and publish them; a known id or key returns the first task. One transaction per 500.

    Raises ``BadTask``, ``PayloadTooLarge``, ``KeyConflict`` and ``ProjectClosed`` with nothing written of the batch;
    ``StoreUnavailable`` with nothing published. Inside a transaction of the user's all that is part of it, and follows
    its commit.
    """
    check(rt, new)
    enqueued: list[Enqueued] = []
    for start in range(0, len(new), BATCH):
        batch, recorded = placed_and_recorded(rt, new[start : start + BATCH], partial(_commit, rt))
        if rt.store.outer is None:
            points.reached(points.Kind.ENQUEUE, (task.name for task in batch))
        afterwards(rt, recorded.dispatches, partial(_tell, rt, batch, recorded), publish)
        enqueued += recorded.enqueued
    return enqueued


def _tell(rt: Runtime, batch: Sequence[NewTask], recorded: Recorded) -> None:
    announce(rt, batch, recorded)
    follow_up(rt, recorded.released)


def adopt(rt: Runtime, new: NewTask) -> int:
    """Record a message that came without a token as (queue, 1), or as scheduled; 0 if its delivery is to be refused."""
    check(rt, [new])
    _, recorded = placed_and_recorded(rt, [new], partial(_commit, rt, adopted=True))
    announce(rt, [new], recorded)
    return recorded.enqueued[0].token if recorded.enqueued[0].created else 0


def placed_and_recorded(
    rt: Runtime, batch: Sequence[NewTask], commit: Callable[[Sequence[NewTask]], T]
) -> tuple[list[NewTask], T]:
    """Commit tasks in their projects. One that this process remembers may have been pruned: it is made anew, once."""
    placed = [_in_project(rt, task) for task in batch]
    try:
        return placed, commit(placed)
    except ProjectPruned:
        for task in batch:
            rt.project_ids.pop(task.project or rt.settings.default_project, None)
    again = [_in_project(rt, replace(task, project_id=None) if task.project else task) for task in batch]
    return again, commit(again)


def _in_project(rt: Runtime, task: NewTask) -> NewTask:
    if task.project_id is not None:
        return task
    return replace(task, project_id=steer.open_project(rt, task.project or rt.settings.default_project))


def _commit(rt: Runtime, batch: Sequence[NewTask], *, adopted: bool = False) -> Recorded:
    """A rival's same key, or a commit whose answer was lost, is met by looking before the second try."""

    def write(look: bool) -> Recorded:
        return rt.store.transaction(
            lambda connection: record(rt, connection, batch, look=look, adopted=adopted, strict=True)
        )

    rt.window.note(rt.store, batch)
    look = adopted or any(task.key is not None or task.unique is not None for task in batch)
    try:
        return write(look)
    except (DuplicateRow, StoreUnavailable) as error:
        note_levels_of(error)
    return past_rivals(lambda: write(look=True))


def record(
    rt: Runtime,
    connection: Connection,
    batch: Sequence[NewTask],
    *,
    look: bool = False,
    adopted: bool = False,
    strict: bool = False,
) -> Recorded:
    """Insert the rows of new tasks in the caller's transaction. With ``look``, known ids and keys are found first.

    A known id whose task was abandoned lives again with the new message. ``strict``: ``KeyConflict`` may be raised,
    for the caller is who asked for the key.
    """
    found = projects.shared(rt.store, connection, {_project_id(task) for task in batch})
    batch = _ranked(rt, batch, found)
    known = _known(rt, connection, batch) if look else {}
    alive = _alive(rt, connection, batch) if look else {}
    links = after.look(rt, connection, batch, known, alive) if any(task.after for task in batch) else Links()
    entry = Entry(rt, connection, batch, found)
    fresh: dict[str, NewTask] = {}
    fences: dict[str, int] = {}
    leading: set[str] = set()
    rows: list[dict[str, Any]] = []
    enqueued: list[Enqueued] = []
    out: list[Dispatch] = []
    unwritten: Counter[str] = Counter()
    for task in batch:
        first = known.get((_project_id(task), task.key)) or known.get(task.id) if known else None
        if first is not None and first.id == task.id and first.abandoned and not adopted and not task.after:
            fences[task.id] = first.fence  # what it waited for has come after all
            if first.leads:
                leading.add(task.id)
        elif first is not None:
            successor = take_over(rt, connection, task)
            out += successor or ()
            differs = successor is None and _differs(rt, first.message, task)
            if strict and differs and task.key is not None and task.id != first.id:
                _check_conflict(rt, found.get(_project_id(task)), task, first.id)
            enqueued.append(Enqueued(first.id, created=False, token=0, differs=differs))
            links.note(task, first.id)
            continue
        twin = _twin(fresh, task)
        if twin is not None:
            differs = _differs(rt, twin.message, task)
            if strict and differs and task.id != twin.id:
                _check_conflict(rt, found.get(_project_id(task)), task, twin.id)
            enqueued.append(Enqueued(twin.id, created=False, token=0, differs=differs))
            links.note(task, twin.id)
            continue
        if task.unique is not None and task.unique in alive:
            fences.pop(task.id, None)
            enqueued.append(Enqueued(alive[task.unique], created=False, token=0))
            links.note(task, alive[task.unique])
            continue
        project = _check_open(found.get(_project_id(task)), task)
        fresh[task.id] = task
        if task.unique is not None:
            alive[task.unique] = task.id
        waits = links.add(task)
        names = entry.names_of(task, project)
        line = entry.line_for(task, names, paused=project.paused or waits > 0)
        goes = not waits and line is None
        sent = unwritten[task.message.queue]
        direct = goes and _goes_out(rt, connection, task, sent, paused=project.paused, adopted=adopted)
        unwritten[task.message.queue] += direct
        entry.come(task, names, line, direct=direct)
        token = fences[task.id] + 1 if task.id in fences else int(direct)
        enqueued.append(Enqueued(task.id, created=True, token=token if direct else 0))
        row = _lease_row(rt, task, token, direct, project.paused)
        rows.append({**row, "waits": waits, **entry.parking(task.id)})
        if direct and not adopted:
            out.append(Dispatch(task.id, token, task.message))
    leads = links.leading | leading
    _write(rt, connection, fresh, fences, [{**row, "leads": int(row["task_id"] in leads)} for row in rows])
    entry.write()
    for task_id in sorted(leading & set(fresh)):
        bring_back(rt, connection, found[_project_id(fresh[task_id])], [task_id], AS_SET)
    return Recorded(tuple(enqueued), tuple(out), _link(rt, connection, links, fresh) if links.new else Released())


def _link(rt: Runtime, connection: Connection, links: Links, fresh: dict[str, NewTask]) -> Released:
    """What comes after a task that has failed already is given up at once, and comes back when that is retried."""
    after.write(connection, links, links.alive - set(fresh))
    if rt.store.outer is not None:
        return Released(left=links.failed)  # the user's transaction may not see how they ended
    return wake_after(rt, connection, links.failed)


class UnknownLevels(DuplicateRow):
    """The priority of a project made (queue, priority) pairs that the scheduler has to know before their leases."""

    def __init__(self, rt: Runtime, levels: set[tuple[str, int]]) -> None:
        super().__init__(f"{levels} are to be noted first")
        self._rt, self._levels = rt, levels

    def note(self) -> None:
        self._rt.window.note_levels(self._rt.store, self._levels)


def _ranked(rt: Runtime, batch: Sequence[NewTask], found: Mapping[int, Project]) -> list[NewTask]:
    """A call that names no priority has its project's. Read with the project's lock, so that it is the one that holds.

    Raises ``UnknownLevels``, which ``past_rivals`` notes before it repeats the transaction.
    """
    ranked = [_rank(rt, task, found.get(_project_id(task))) for task in batch]
    levels = {(task.message.queue, task.priority) for task, given in zip(ranked, batch, strict=True) if task != given}
    unknown = {level for level in levels if not rt.window.knows(*level)}
    if unknown and rt.store.outer is not None:
        rt.window.note_levels(rt.store, unknown)  # beside the user's transaction, or on SQLite in it
    elif unknown:
        raise UnknownLevels(rt, unknown)
    return ranked


def _rank(rt: Runtime, task: NewTask, project: Project | None) -> NewTask:
    if project is None or not project.priority or task.ranked:
        return task
    properties = {**task.message.properties, "priority": project.priority}
    return replace(
        task, priority=rt.urgency(project.priority), message=replace(task.message, properties=properties), ranked=True
    )


def _write(
    rt: Runtime,
    connection: Connection,
    fresh: dict[str, NewTask],
    fences: dict[str, int],
    lease_rows: Sequence[dict[str, Any]],
) -> None:
    """Insert what is new; what was abandoned lives again, under a token above its fence."""
    new = [_task_row(rt, task) for task in fresh.values() if task.id not in fences]
    if fences:
        tasks.insert(rt.store, connection, new)
        leases.insert(rt.store, connection, lease_rows)
    elif new:
        entering.enter(rt.store, connection, new, lease_rows)
    for chord_id in sorted(task.joins for task in fresh.values() if task.joins is not None):
        chords.add(connection, chord_id)
    if fences:
        chords.take_back(rt.store, connection, fences)
    for task_id in sorted(fences):
        if not tasks.revive(connection, _task_row(rt, fresh[task_id]), fences[task_id]):
            raise DuplicateRow(f"task {task_id} was revived by another")


def past_rivals(transaction: Callable[[], T]) -> T:
    """Repeat a transaction that looks before it inserts, if a rival inserted in between."""
    for _ in range(3):
        try:
            return transaction()
        except DuplicateRow as rival:
            note_levels_of(rival)
    return transaction()


def note_levels_of(error: Exception) -> None:
    if isinstance(error, UnknownLevels):
        error.note()


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


def _known(rt: Runtime, connection: Connection, batch: Sequence[NewTask]) -> dict[Any, tasks.Known]:
    ids = [task.id for task in batch]
    keys = [(_project_id(task), task.key) for task in batch if task.key is not None]
    known: dict[Any, tasks.Known] = {}
    found = tasks.known(connection, ids, keys)
    if rt.store.outer is not None:  # which may not see a rival's, though it meets it
        found = [*rt.store.latest(connection, lambda latest: tasks.known(latest, ids, keys)), *found]
    for task in found:
        if task.outcome is TaskState.RUNNING:  # it was not durable, and a state of it is kept
            tasks.drop_kept(connection, task.id)
            continue
        known[task.id] = task
        if task.key is not None:
            known[task.project_id, task.key] = task
    return known


def _alive(rt: Runtime, connection: Connection, batch: Sequence[NewTask]) -> dict[str, str]:
    """Of each kind that may live once, the task that does."""
    marks = {task.unique for task in batch if task.unique is not None}
    alive = leases.alive_of(connection, marks) if marks else {}
    if marks and rt.store.outer is not None:
        alive |= rt.store.latest(connection, lambda latest: leases.alive_of(latest, marks))
    return alive


def _twin(fresh: dict[str, NewTask], task: NewTask) -> NewTask | None:
    """The same id or key earlier in this very batch."""
    if task.id in fresh:
        return fresh[task.id]
    if task.key is None:
        return None
    place = (task.project_id, task.key)
    return next((other for other in fresh.values() if (other.project_id, other.key) == place), None)


def _differs(rt: Runtime, first: Message, task: NewTask) -> bool:
    return not rt.same_call(first, task.message)


def _check_conflict(rt: Runtime, project: projects.Project | None, task: NewTask, first_id: str) -> None:
    if (task.key_conflict or rt.settings.key_conflict) != "error":
        return
    name = project.name if project is not None else task.project
    raise KeyConflict(
        f"project {name!r} has the key {task.key!r} for the task {first_id}, and {task.name}[{task.id}] is another task"
        " or has other arguments: give it a key of its own, or argus_key_conflict='first' to be led to the first one"
    )


def _check_open(project: Project | None, task: NewTask) -> Project:
    if project is None:
        raise ProjectPruned(f"the project of {task.name}[{task.id}] is gone (pruned): enqueue it in a new one")
    allowed = project.status.live if task.inside else project.status is ProjectStatus.OPEN
    if not allowed:
        raise ProjectClosed(
            f"project {project.name!r} is {project.status}: it takes no more tasks from outside,"
            " unless project.reopen() opens it"
        )
    return project


def _goes_out(
    rt: Runtime, connection: Connection, task: NewTask, unwritten: int, *, paused: bool, adopted: bool
) -> bool:
    if paused or (task.delay_ms or 0) > 0 or task.due_at is not None:
        return False
    return adopted or rt.window.take(rt.store, connection, rt.settings.dispatch_window, task.message.queue, unwritten)


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
        "unique_key": task.unique,
        "limits": bounds.dump(task.limits),
    }


def _lease_row(rt: Runtime, task: NewTask, token: int, direct: bool, paused: bool) -> dict[str, Any]:
    return {
        "task_id": task.id,
        "project_id": task.project_id,
        "queue": task.message.queue,
        "priority": task.priority,
        "token": token,
        "holder": QUEUE if direct else NOBODY,
        "delay": rt.dispatch_ttl_ms if direct else (task.delay_ms or 0),
        "due_at": task.due_at,
        "expires_in": task.expires_in_ms,
        "expires_at_abs": task.expires_at,
        "ttl": task.lease_ttl_ms or rt.lease_ttl_ms,
        "paused": int(paused),
        "dispatches": int(direct),
        "follows": int(task.follows),
        "unique_key": task.unique,
    }
