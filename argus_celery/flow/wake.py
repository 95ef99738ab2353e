"""Wake: a task has ended, and what comes after it is told.

The ending transaction tells up to 500 children: it lowers what they wait for and hands the free ones to the queue, or
finds that they are never to run. Whoever ended the task goes on with the rest after its commit
(``flow.end.follow_up``), and the slow sweep does what a crash in between has left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from argus_celery.flow.requeue import dispatch_own
from argus_celery.flow.runtime import Runtime
from argus_celery.records import Dispatch, TaskState
from argus_celery.store import edges, leases, projects
from argus_celery.store.edges import Edge
from argus_celery.store.leases import Lease
from argus_celery.store.tasks import Ending

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

CHILDREN = 500


@dataclass
class Released:
    """What an end lets go; ``flow.end.follow_up`` does after the commit what is to be done about it."""

    dispatches: list[Dispatch] = field(default_factory=list)
    """What may go out now: to be published."""
    abandoned: list[Ending] = field(default_factory=list)
    """Never to run, for a parent ended badly; their leases are locked."""
    left: set[str] = field(default_factory=set)
    """Ended tasks that may have children to be told yet."""
    alarms: set[int] = field(default_factory=set)
    """Projects that are to be paused or cancelled for what has failed (``flow.alarm.meet``)."""


def wake(rt: Runtime, connection: Connection, parents: Collection[str]) -> Released:
    """Tell the children of these ended tasks, up to 500 a call; what is never to run is left to the caller to end."""
    children = edges.waiting_for(connection, parents, CHILDREN) if parents else []
    if not children:
        return Released()
    rows = leases.lock_all(rt.store, connection, children)
    # Behind the locks: another may have told them meanwhile.
    told = edges.unmet(connection, children, parents)
    edges.meet(connection, parents, children)
    released = _settle(rt, connection, rows, told)
    if len(children) == CHILDREN:
        released.left = set(parents)
    return released


def _settle(rt: Runtime, connection: Connection, rows: Sequence[Lease], told: Sequence[Edge]) -> Released:
    abandoned = _abandoned(rt, connection, rows, told)
    never = {ending.task_id for ending in abandoned}
    met = Counter(edge.child_id for edge in told)
    going = [row for row in rows if row.task_id not in never and met[row.task_id]]
    free = [row for row in going if row.waits <= met[row.task_id]]
    # Asked before they are due: the window is not for those before which others wait.
    sent = fitting(rt, connection, free)
    for number in sorted({met[row.task_id] for row in going}):
        leases.wait_less(connection, [row.task_id for row in going if met[row.task_id] == number], number)
    return Released(dispatch_own(rt, connection, sent), abandoned)


def fitting(rt: Runtime, connection: Connection, rows: Sequence[Lease]) -> list[str]:
    """Those that may go out at once, when they are due."""
    sent: Counter[str] = Counter()
    fit = []
    for row in rows:
        if rt.window.take(rt.store, connection, rt.settings.dispatch_window, row.queue, sent[row.queue]):
            sent[row.queue] += 1
            fit.append(row.task_id)
    return fit


def _abandoned(rt: Runtime, connection: Connection, rows: Sequence[Lease], told: Sequence[Edge]) -> list[Ending]:
    """In a project that was cancelled nothing is: what waits ends as cancelled."""
    why = {edge.child_id: _why(edge) for edge in reversed(told) if edge.forbids}
    found = projects.read(connection, {row.project_id for row in rows}) if why else {}
    return [
        given_up(rt, row, why[row.task_id])
        for row in rows
        if row.task_id in why and row.project_id in found and found[row.project_id].status.live
    ]


def given_up(rt: Runtime, row: Lease, why: str) -> Ending:
    """The outcome of a task that is never to run, for what leads to it has failed; a retry of that brings it back."""
    owed = rt.foreign_results
    return Ending(
        row.task_id,
        row.token,
        TaskState.FAILED,
        why,
        undelivered=owed,
        follows=row.follows,
        abandoned=True,
        leads=row.leads,
        limited=row.limited,
    )


def _why(edge: Edge) -> str:
    return f"it comes after {edge.parent_id}, which ended {edge.outcome}"


def derive(rt: Runtime, connection: Connection, children: Collection[str]) -> Released:
    """What these tasks wait for, anew from their parents, whatever their rows say. For the slow sweep."""
    rows = [row for row in leases.lock_all(rt.store, connection, children) if row.waits]
    ids = [row.task_id for row in rows]
    unmet = edges.unmet(connection, ids) if ids else []
    over = [edge for edge in unmet if edge.is_over]
    # Set right first, so that each parent that is over takes off its own.
    waits = Counter(edge.child_id for edge in unmet)
    for number in sorted({waits[row.task_id] for row in rows}):
        leases.wait_for(connection, [row.task_id for row in rows if waits[row.task_id] == number], number)
    parents = sorted({edge.parent_id for edge in over})
    for start in range(0, len(parents), edges.AT_ONCE):
        edges.meet(connection, parents[start : start + edges.AT_ONCE], ids)
    return _settle(rt, connection, [replace(row, waits=waits[row.task_id]) for row in rows], over)
