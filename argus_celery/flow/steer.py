"""Steering a project: open, close, pause, resume, cancel, complete, each under the project's exclusive lock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from argus_celery import signals
from argus_celery.errors import BadOption, ProjectClosed, ProjectNotFound
from argus_celery.flow.afterwards import afterwards
from argus_celery.flow.end import follow_up
from argus_celery.flow.requeue import PROJECT_CANCELLED
from argus_celery.flow.revoke import end_cancelled
from argus_celery.flow.runtime import Runtime
from argus_celery.flow.wake import Released
from argus_celery.records import AttemptOutcome, ProjectStatus
from argus_celery.store import alarms, attempts, leases, limits, projects, steering, tasks
from argus_celery.store.engine import DuplicateRow
from argus_celery.store.projects import Project

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

T = TypeVar("T")

BATCH = 500


def open_project(rt: Runtime, name: str, given: Mapping[str, Any] | None = None, *, anew: bool = False) -> int:
    """The id of the project of this name; made, open, with the options given if there is none.

    Ids are remembered, and a project that was pruned is met by who uses its id. ``anew``: look all the same.
    """
    if name in rt.project_ids and not anew:
        return rt.project_ids[name]
    project_id, committed = rt.store.apart(lambda: _find_or_make(rt, name, given or {}))
    if committed:
        rt.project_ids[name] = project_id
    return project_id


def _find_or_make(rt: Runtime, name: str, given: Mapping[str, Any]) -> int:
    found = rt.store.statement(lambda connection: projects.find(connection, name))
    if found is not None:
        return found.id

    def make(connection: Connection) -> None:
        check_to_come(rt, connection, name, given)
        projects.insert(rt.store, connection, name, given)

    try:
        rt.store.transaction(make)
        opened = partial(signals.project_opened.send, sender=rt.store.app_name, project=name)
        afterwards(rt, (), opened)
    except DuplicateRow:
        pass  # a rival made it between the look and the insert
    made = rt.store.statement(lambda connection: projects.find(connection, name))
    assert made is not None
    return made.id


def check_to_come(rt: Runtime, connection: Connection, name: str, given: Mapping[str, Any]) -> None:
    """A deadline that is over would cancel the project at once. Raises ``BadOption``."""
    instant = given.get("deadline_at")
    if instant is not None and projects.is_over(rt.store, connection, instant):
        raise BadOption(
            f"the deadline of project {name!r}, {moment(instant)}, is over by the store's clock: give one that is to"
            " come, or cancel the project"
        )


def moment(instant: int) -> str:
    """Milliseconds since the epoch as a person reads them."""
    return datetime.fromtimestamp(instant / 1000, UTC).isoformat(sep=" ", timespec="seconds")


def close(rt: Runtime, name: str) -> None:
    """No more tasks from outside; the project completes when it has drained. Closing twice changes nothing."""

    def write(connection: Connection, project: Project) -> bool:
        if project.status is ProjectStatus.OPEN:
            projects.close(rt.store, connection, project.id)
            return True
        return False

    if locked(rt, name, write):
        signals.project_closed.send(sender=rt.store.app_name, project=name)
    try_complete(rt, name)


def reopen(rt: Runtime, name: str) -> None:
    """The project takes tasks from outside again. What was cancelled stays so, what still ran included.

    A deadline that is over is dropped: it would cancel the project at once.
    """

    def write(connection: Connection, project: Project) -> int | None:
        if project.status is ProjectStatus.CANCELLED and projects.has_lease(connection, project.id):
            return project.id
        if project.status is not ProjectStatus.OPEN:
            projects.reopen(rt.store, connection, project.id)
        return None

    while (still_ending := locked(rt, name, write)) is not None:
        _end_all(rt, still_ending, running_too=True)


def pause(rt: Runtime, name: str, *, stop: bool = False) -> None:
    """Park all that waits; running work goes on, or with ``stop`` is taken back: its runs can write nothing more, and
    are told. Takes hold at once: nothing of the project is claimed afterwards.
    """

    def write(connection: Connection, project: Project) -> bool:
        _check_live(project)
        mark_paused(rt, connection, project)
        return stop and _take_back(rt, connection, project)

    stopped = locked(rt, name, write)
    signals.project_paused.send(sender=rt.store.app_name, project=name, reason=None)
    if stopped:
        rt.ring()


def mark_paused(rt: Runtime, connection: Connection, project: Project, reason: str | None = None) -> None:
    """The caller has the project exclusively."""
    projects.pause(rt.store, connection, project.id, reason)
    steering.pause_project(rt.store, connection, project.id)
    limits.stir(rt.store, connection, project.id)


def _take_back(rt: Runtime, connection: Connection, project: Project) -> bool:
    """What runs is released, parked in the place it had; was there any?"""
    rows = steering.lock_running(rt.store, connection, project.id)
    started = [row.task_id for row in rows if row.started]
    if started:
        attempts.append(rt.store, connection, started, AttemptOutcome.RELEASED, attempts.TAKEN_BACK)
        tasks.note_attempt(connection, started)
    if rows:
        leases.put_back(connection, [row.task_id for row in rows])  # and parked, as all of the project is
    limits.stir(rt.store, connection, project.id)
    return bool(rows)


def resume(rt: Runtime, name: str) -> None:
    """Parked work is due again when it was due before, in the order in which it came. Failures until now are forgiven:
    only a later one pauses the project once more.
    """

    def write(connection: Connection, project: Project) -> None:
        projects.resume(connection, project.id)
        steering.resume_project(rt.store, connection, project.id)
        if project.status is not ProjectStatus.CANCELLED:
            alarms.silence(connection, project.id, [one.task_id for one in alarms.standing(connection, project.id)])

    locked(rt, name, write)
    signals.project_resumed.send(sender=rt.store.app_name, project=name)


def cancel(rt: Runtime, name: str, reason: str | None = None) -> list[tuple[str, int, str]]:
    """End what waits as ``cancelled``; returns (task, token, holder) of what runs, and is asked to stop.

    A running task that completes first keeps its outcome; its continuations do not happen. None is started afterwards.
    """

    def write(connection: Connection, project: Project) -> Project:
        if project.status.live:
            mark_cancelled(rt, connection, project, reason)
        return project

    project = locked(rt, name, write)
    if not project.status.live and project.status is not ProjectStatus.CANCELLED:
        return []
    return end_cancelled_project(rt, project)


def mark_cancelled(rt: Runtime, connection: Connection, project: Project, reason: str | None) -> None:
    """The caller has the project exclusively, and ends what waits of it after the commit; else a sweep does."""
    projects.finish(rt.store, connection, project.id, ProjectStatus.CANCELLED, reason)
    # A running task that a pause has parked would never lapse, and nobody resumes a cancelled project.
    steering.resume_project(rt.store, connection, project.id)
    # Nor does what waits for others: all is due, and a dispatch ends what a crash in the middle leaves.
    steering.wait_no_more(connection, project.id)
    alarms.sound(rt.store, connection, [(project.id, alarms.CANCEL)])


def end_cancelled_project(rt: Runtime, project: Project) -> list[tuple[str, int, str]]:
    """End what waits of a project that is cancelled, and ask what runs to stop."""
    _end_all(rt, project.id)
    running = rt.store.transaction(lambda connection: _silence(connection, project.id))
    if project.status.live:  # it was, before
        signals.project_cancelled.send(sender=rt.store.app_name, project=project.name)
    if running:
        rt.ring()
    return running


def _silence(connection: Connection, project_id: int) -> list[tuple[str, int, str]]:
    alarms.silence(connection, project_id, [one.task_id for one in alarms.standing(connection, project_id)])
    return steering.running_of(connection, project_id)


def _end_all(rt: Runtime, project_id: int, *, running_too: bool = False) -> None:
    def write(connection: Connection) -> tuple[int, Released]:
        # Locked: it may be reopened, and nothing of what is enqueued then is to be ended here.
        project = projects.shared(rt.store, connection, [project_id]).get(project_id)
        if project is None or project.status is not ProjectStatus.CANCELLED:
            return 0, Released()
        rows = steering.lock_rows(rt.store, connection, project_id, BATCH, running_too=running_too)
        return len(rows), end_cancelled(rt, connection, rows, PROJECT_CANCELLED)

    ended = BATCH
    while ended == BATCH:
        ended, released = rt.store.transaction(write)
        follow_up(rt, released)


def try_complete(rt: Runtime, name: str) -> bool:
    """Complete the project if it is closed and has no lease left; looked at again under the exclusive lock."""

    def write(connection: Connection, project: Project) -> ProjectStatus | None:
        if project.status is not ProjectStatus.CLOSED or projects.has_lease(connection, project.id):
            return None
        if projects.owes_more(connection, project.id):
            return None
        failed = projects.has_failure(connection, project.id)
        status = ProjectStatus.FAILED if failed else ProjectStatus.COMPLETED
        projects.finish(rt.store, connection, project.id, status)
        return status

    status = locked(rt, name, write)
    if status is not None:
        signal = signals.project_failed if status is ProjectStatus.FAILED else signals.project_completed
        signal.send(sender=rt.store.app_name, project=name)
    return status is not None


def complete_drained(rt: Runtime, limit: int = 100) -> list[str]:
    """Complete every closed project that has drained; returns their names."""
    drained = rt.store.statement(lambda connection: projects.drained(connection, limit))
    return [project.name for project in drained if try_complete(rt, project.name)]


def locked(rt: Runtime, name: str, write: Callable[[Connection, Project], T]) -> T:
    """Run ``write`` in a transaction that has the project exclusively. Raises ``ProjectNotFound``, and
    ``BadTransaction`` inside one that holds projects shared.
    """
    rt.store.check_outside(f"project {name!r} cannot be steered")

    def work(connection: Connection) -> T:
        found = projects.find(connection, name)
        project = projects.exclusive(rt.store, connection, found.id) if found is not None else None
        if project is None:
            rt.project_ids.pop(name, None)
            raise ProjectNotFound(f"there is no project {name!r}: argus.project({name!r}) opens it")
        return write(connection, project)

    return rt.store.transaction(work)


def _check_live(project: Project) -> None:
    if not project.status.live:
        raise ProjectClosed(f"project {project.name!r} is {project.status} and cannot be paused")
