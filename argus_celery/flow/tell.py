"""Tell: a project is told an event, once, and who waits for it goes on.

The telling transaction wakes up to 500 tasks; the teller goes on with the rest after its commit, and the slow sweep
does what a crash in between has left.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from argus_celery import signals
from argus_celery.errors import ProjectClosed, ProjectNotFound, StoreUnavailable
from argus_celery.flow.afterwards import afterwards
from argus_celery.flow.publish import send
from argus_celery.flow.requeue import dispatch_own
from argus_celery.flow.runtime import Runtime
from argus_celery.flow.wake import fitting
from argus_celery.records import Dispatch
from argus_celery.store import events, leases, projects, waits
from argus_celery.store.projects import Project

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

AT_ONCE = 500


def tell(rt: Runtime, project: str, name: str, payload: bytes) -> bool:
    """False if the project had been told before: what it was told first stays. In a transaction of the user's it is
    told with the commit.

    Raises ``ProjectNotFound``, ``ProjectClosed`` if it has ended, and ``StoreUnavailable``.
    """
    told = rt.store.transaction(lambda connection: _write(rt, connection, project, name, payload))
    if told is None:
        return False
    project_id, woken, dispatches = told
    afterwards(rt, dispatches, partial(_told, rt, project, project_id, name, all_woken=woken < AT_ONCE))
    return True


def _told(rt: Runtime, project: str, project_id: int, name: str, *, all_woken: bool) -> None:
    signals.project_told.send(sender=rt.store.app_name, project=project, name=name)
    if not all_woken:
        with suppress(StoreUnavailable):  # it is told; the slow sweep wakes the rest
            wake(rt, project_id, name)


def wake(rt: Runtime, project_id: int, name: str) -> int:
    """Wake all who still wait for this event, which was sent; returns how many."""
    total, woken = 0, AT_ONCE
    while woken == AT_ONCE:
        woken, dispatches = rt.store.transaction(lambda connection: _wake_locked(rt, connection, project_id, name))
        send(rt, dispatches)
        total += woken
    return total


def _write(
    rt: Runtime, connection: Connection, project_name: str, name: str, payload: bytes
) -> tuple[int, int, list[Dispatch]] | None:
    project = _live(rt, connection, project_name)
    if events.lock(rt.store, connection, project.id, name) is not None:
        return None
    events.tell(rt.store, connection, project.id, name, payload)
    return project.id, *_wake(rt, connection, project.id, name)


def _live(rt: Runtime, connection: Connection, name: str) -> Project:
    """Locked against steering."""
    found = projects.find(connection, name)
    project = projects.shared(rt.store, connection, {found.id}).get(found.id) if found is not None else None
    if project is None:
        raise ProjectNotFound(f"there is no project {name!r}: argus.project({name!r}) opens it")
    if not project.status.live:
        raise ProjectClosed(f"project {name!r} is {project.status} and is told nothing more: reopen it first")
    return project


def _wake_locked(rt: Runtime, connection: Connection, project_id: int, name: str) -> tuple[int, list[Dispatch]]:
    projects.hold(rt.store, connection, project_id)
    return _wake(rt, connection, project_id, name)


def _wake(rt: Runtime, connection: Connection, project_id: int, name: str) -> tuple[int, list[Dispatch]]:
    """How many were woken, and what may go out of them now. Those that a rival has woken meanwhile count too."""
    ids = waits.of_event(connection, project_id, name, AT_ONCE)
    if not ids:
        return 0, []
    rows = leases.lock_all(rt.store, connection, ids)
    # Behind the locks: the time of some may just have come, and they may wait for something else by now.
    waiting = set(waits.of_event(connection, project_id, name, AT_ONCE, ids))
    rows = [row for row in rows if row.task_id in waiting]
    # Asked before they are due: the window is not for those before which others wait.
    sent = fitting(rt, connection, rows)
    leases.wake(rt.store, connection, sorted(waiting))
    waits.forget(connection, waiting)
    return len(ids), dispatch_own(rt, connection, sent)
