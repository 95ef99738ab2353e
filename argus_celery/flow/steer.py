"""Steering a project: open, close, pause, resume, cancel, complete, each under the project's exclusive lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from argus_celery import signals
from argus_celery.errors import ProjectClosed, ProjectNotFound
from argus_celery.flow.requeue import unrun
from argus_celery.flow.runtime import Runtime
from argus_celery.records import ProjectStatus, TaskState
from argus_celery.store import leases, projects, tasks
from argus_celery.store.engine import DuplicateRow
from argus_celery.store.projects import Project

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

T = TypeVar("T")

BATCH = 500


def open_project(rt: Runtime, name: str) -> int:
    """The id of the project of this name; made, open, if there is none."""
    if name not in rt.project_ids:
        rt.project_ids[name] = _find_or_make(rt, name)
    return rt.project_ids[name]


def _find_or_make(rt: Runtime, name: str) -> int:
    found = rt.store.statement(lambda connection: projects.find(connection, name))
    if found is not None:
        return found.id
    try:
        rt.store.transaction(lambda connection: projects.insert(rt.store, connection, name))
        signals.project_opened.send(sender=rt.store.app_name, project=name)
    except DuplicateRow:
        pass  # a rival made it between the look and the insert
    made = rt.store.statement(lambda connection: projects.find(connection, name))
    assert made is not None
    return made.id


def close(rt: Runtime, name: str) -> None:
    """No more tasks from outside; the project completes when it has drained. Closing twice changes nothing."""

    def write(connection: Connection, project: Project) -> bool:
        if project.status is ProjectStatus.OPEN:
            projects.close(rt.store, connection, project.id)
            return True
        return False

    if _locked(rt, name, write):
        signals.project_closed.send(sender=rt.store.app_name, project=name)
    try_complete(rt, name)


def pause(rt: Runtime, name: str) -> None:
    """Park all that waits; running work goes on. Takes hold at once: nothing of it is claimed afterwards."""

    def write(connection: Connection, project: Project) -> None:
        _check_live(project)
        projects.pause(rt.store, connection, project.id)
        leases.pause_project(rt.store, connection, project.id)

    _locked(rt, name, write)


def resume(rt: Runtime, name: str) -> None:
    """Parked work is due again when it was due before."""

    def write(connection: Connection, project: Project) -> None:
        projects.resume(connection, project.id)
        leases.resume_project(rt.store, connection, project.id)

    _locked(rt, name, write)


def cancel(rt: Runtime, name: str) -> list[tuple[str, int, str]]:
    """End what waits as ``cancelled``; returns (task, token, holder) of what runs and is to be asked to stop.

    A running task that completes first keeps its outcome; its continuations do not happen.
    """

    def write(connection: Connection, project: Project) -> int:
        if project.status.live:
            projects.finish(rt.store, connection, project.id, ProjectStatus.CANCELLED)
        # A running task that a pause has parked would never lapse, and nobody resumes a cancelled project.
        leases.resume_project(rt.store, connection, project.id)
        return project.id

    project_id = _locked(rt, name, write)
    while rt.store.transaction(lambda connection: _end_some(rt, connection, project_id)) == BATCH:
        pass
    return rt.store.statement(lambda connection: leases.running_of(connection, project_id))


def _end_some(rt: Runtime, connection: Connection, project_id: int) -> int:
    rows = leases.lock_not_running(rt.store, connection, project_id, BATCH)
    leases.delete_all(connection, [row.task_id for row in rows])
    why = "the project was cancelled"
    tasks.end(rt.store, connection, [unrun(rt, row, TaskState.CANCELLED, why) for row in rows])
    return len(rows)


def try_complete(rt: Runtime, name: str) -> bool:
    """Complete the project if it is closed and has no lease left; looked at again under the exclusive lock."""

    def write(connection: Connection, project: Project) -> ProjectStatus | None:
        if project.status is not ProjectStatus.CLOSED or projects.has_lease(connection, project.id):
            return None
        if projects.owes_errbacks(connection, project.id):
            return None
        failed = projects.has_failure(connection, project.id)
        status = ProjectStatus.FAILED if failed else ProjectStatus.COMPLETED
        projects.finish(rt.store, connection, project.id, status)
        return status

    status = _locked(rt, name, write)
    if status is not None:
        signal = signals.project_failed if status is ProjectStatus.FAILED else signals.project_completed
        signal.send(sender=rt.store.app_name, project=name)
    return status is not None


def complete_drained(rt: Runtime, limit: int = 100) -> list[str]:
    """Complete every closed project that has drained; returns their names."""
    drained = rt.store.statement(lambda connection: projects.drained(connection, limit))
    return [project.name for project in drained if try_complete(rt, project.name)]


def _locked(rt: Runtime, name: str, write: Callable[[Connection, Project], T]) -> T:
    def work(connection: Connection) -> T:
        found = projects.find(connection, name)
        project = projects.exclusive(rt.store, connection, found.id) if found is not None else None
        if project is None:
            raise ProjectNotFound(f"there is no project {name!r}: argus.project({name!r}) opens it")
        return write(connection, project)

    return rt.store.transaction(work)


def _check_live(project: Project) -> None:
    if not project.status.live:
        raise ProjectClosed(f"project {project.name!r} is {project.status} and cannot be paused")
