"""Mend: the slow sweep. What a row says of its project, and of the tasks it comes after, is derived anew, whatever made
the two disagree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from argus_celery.flow import tell
from argus_celery.flow.end import end_abandoned, follow_up
from argus_celery.flow.runtime import Runtime
from argus_celery.flow.wake import Released, derive
from argus_celery.store import edges, limits, projects, steering, waits

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

PROJECTS = 20
ROWS = 500


def mend(rt: Runtime) -> int:
    """Park rows that a pause has missed, unpark those that nothing would resume, wake those that wait for nothing any
    more; returns how many.

    Up to 500 rows of each of 20 projects a call, and 500 of all that wait for others. Its cost follows the number of
    live projects, of limits, and of tasks that wait for others or for events. Lines that nobody looks at are looked at
    by the next dispatch, and limits that no task is under are forgotten.
    """
    _mend_limits(rt)
    found = rt.store.statement(lambda connection: projects.misparked(connection, PROJECTS))
    return sum(_mend(rt, project_id) for project_id in found) + _mend_waits(rt) + _mend_events(rt)


def _mend_limits(rt: Runtime) -> None:
    waiting, unused = rt.store.statement(lambda connection: limits.left(rt.store, connection, ROWS))
    if waiting:
        rt.store.transaction(lambda connection: limits.look_at(rt.store, connection, waiting))
    if unused:
        rt.store.transaction(lambda connection: limits.forget_unused(rt.store, connection, unused))


def _mend(rt: Runtime, project_id: int) -> int:
    """Looked at again under the project's lock, which an enqueue or a pause under way keeps us from."""

    def write(connection: Connection) -> int:
        project = projects.exclusive(rt.store, connection, project_id)
        if project is None:
            return 0
        paused = project.paused and project.status.live
        return steering.repark(rt.store, connection, project_id, paused=paused, limit=ROWS)

    return rt.store.transaction(write)


def _mend_waits(rt: Runtime) -> int:
    """Tasks that wait for parents that have ended, or for more or fewer than they have."""
    misled = rt.store.statement(lambda connection: edges.misled(connection, ROWS))
    if misled:
        follow_up(rt, rt.store.transaction(lambda connection: _derive(rt, connection, misled)))
    return len(misled)


def _mend_events(rt: Runtime) -> int:
    """Tasks that wait for an event which was sent: who sent it could not tell them all."""
    found = rt.store.statement(lambda connection: waits.left(connection, PROJECTS))
    return sum(tell.wake(rt, one.project_id, one.name) for one in found)


def _derive(rt: Runtime, connection: Connection, ids: Sequence[str]) -> Released:
    return end_abandoned(rt, connection, derive(rt, connection, ids))
