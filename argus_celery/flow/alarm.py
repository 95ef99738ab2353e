"""Alarm: a task has failed for good, and its project is to be paused or cancelled for it.

The transaction that ends the task cannot do it: it holds its project shared at most. So it leaves an alarm, which is
met right after its commit, and by a sweep if that process died in between. The sweep ends overdue projects too.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING

from argus_celery import signals
from argus_celery.errors import ProjectNotFound, StoreUnavailable
from argus_celery.flow import steer
from argus_celery.flow.runtime import Runtime
from argus_celery.records import OnFailure, ProjectStatus
from argus_celery.store import alarms, projects
from argus_celery.store.projects import Project

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

PROJECTS = 20


def meet(rt: Runtime, project_ids: Collection[int]) -> None:
    """Do to these projects what their alarms ask for. What the store is away for is left to the sweep."""
    with suppress(StoreUnavailable):
        for project_id in sorted(project_ids):
            _meet(rt, project_id)


def sweep(rt: Runtime) -> None:
    """Meet what is left of alarms, and cancel the projects whose deadline is over; up to 20 of each a call."""
    for project_id in rt.store.statement(lambda connection: alarms.projects_of(connection, PROJECTS)):
        _meet(rt, project_id)
    for name in rt.store.statement(lambda connection: projects.overdue(rt.store, connection, PROJECTS)):
        with suppress(ProjectNotFound):
            _end(rt, name)


def _meet(rt: Runtime, project_id: int) -> None:
    """Looked at again under the project's lock: it may have been steered, and its tasks put back, since."""
    project, reason = rt.store.transaction(lambda connection: _write(rt, connection, project_id))
    if project is None:
        return
    if project.status is ProjectStatus.CANCELLED or (reason and project.on_failure is OnFailure.CANCEL):
        steer.end_cancelled_project(rt, project)
    elif reason:
        signals.project_paused.send(sender=rt.store.app_name, project=project.name, reason=reason)


def _write(rt: Runtime, connection: Connection, project_id: int) -> tuple[Project | None, str | None]:
    """The project as it was, and why it is paused or cancelled now, if it is."""
    project = projects.exclusive(rt.store, connection, project_id)
    standing = alarms.standing(connection, project_id)
    if project is not None and project.status is ProjectStatus.CANCELLED:
        return project, None  # not all of it has ended yet
    failed = next((one for one in standing if one.outcome is not None), None)
    reason = f"{failed.name}[{failed.task_id}] has ended as {failed.outcome}" if failed is not None else None
    if project is None or reason is None or not _reacts(connection, project):
        reason = None
    elif project.on_failure is OnFailure.CANCEL:
        steer.mark_cancelled(rt, connection, project, reason)
        return project, reason
    else:
        steer.mark_paused(rt, connection, project, reason)
    alarms.silence(connection, project_id, [one.task_id for one in standing])
    return project, reason


def _reacts(connection: Connection, project: Project) -> bool:
    """One that has only to complete, as failed, does that."""
    is_paused_already = project.paused and project.on_failure is OnFailure.PAUSE
    if not project.status.live or project.on_failure is OnFailure.CONTINUE or is_paused_already:
        return False
    return project.status is ProjectStatus.OPEN or projects.has_lease(connection, project.id)


def _end(rt: Runtime, name: str) -> None:
    def write(connection: Connection, project: Project) -> Project | None:
        deadline_at = projects.overdue_since(rt.store, connection, project.id)
        if deadline_at is None:
            return None
        steer.mark_cancelled(rt, connection, project, f"its deadline, {steer.moment(deadline_at)}, is over")
        return project

    overdue = steer.locked(rt, name, write)
    if overdue is not None:
        steer.end_cancelled_project(rt, overdue)
