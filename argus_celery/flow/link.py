"""Link: a task that waits is given more to wait for. Under the project's exclusive lock, for two that link each other's
tasks at once would each see no circle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from argus_celery.errors import BadTask, TaskNotFound
from argus_celery.flow import after
from argus_celery.flow.admit import give_up
from argus_celery.flow.end import follow_up, wake_after
from argus_celery.flow.requeue import to_queue
from argus_celery.flow.runtime import Runtime
from argus_celery.flow.steer import locked
from argus_celery.flow.wake import Released
from argus_celery.records import QUEUE, Dispatch
from argus_celery.store import edges, leases, limits
from argus_celery.store.leases import Lease
from argus_celery.store.names import is_possible
from argus_celery.store.projects import Project

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection


def add_after(rt: Runtime, name: str, task_id: str, parents: Sequence[str], *, regardless: bool = False) -> None:
    """Let this task of the project, which no worker has begun, wait for these too (ids or keys).

    Raises ``TaskNotFound``, and ``BadTask`` for a parent that is not there, a circle, or a task that runs or has ended.
    """

    def write(connection: Connection, project: Project) -> Released:
        return _write(rt, connection, project, task_id, parents, regardless)

    follow_up(rt, locked(rt, name, write))


def _write(
    rt: Runtime, connection: Connection, project: Project, named: str, parents: Sequence[str], regardless: bool
) -> Released:
    possible = [one for one in (named, *parents) if is_possible(one)]
    names = after.find(rt, connection, {(project.id, one) for one in possible})
    child = names.get((project.id, named))
    if child is None:
        raise TaskNotFound(f"project {project.name!r} has no task {named!r}")
    for one in parents:
        if (project.id, one) not in names:
            raise BadTask(after.no_such_parent(f"task {child}", one))
    links = after.Links()
    ids = list(dict.fromkeys(names[project.id, one] for one in parents))
    rows = after.lock(rt, connection, links, {child, *ids})
    _check_waits(connection, child, rows.get(child))
    _check_no_circle(connection, child, ids)
    known = edges.policies(connection, child)
    _check_policy(child, {one: known[one] for one in ids if one in known}, regardless)
    first = edges.next_position(connection, child)
    unmet = links.link(child, [one for one in ids if one not in known], regardless=regardless, first=first)
    after.write(connection, links, rows)
    if unmet:
        leases.wait_more(rt.store, connection, child, unmet)
    released = wake_after(rt, connection, links.failed)
    if unmet and rows[child].limited:
        released.dispatches += _leave_line_and_slot(rt, connection, project, child)
    return released


def _leave_line_and_slot(rt: Runtime, connection: Connection, project: Project, child: str) -> list[Dispatch]:
    """Else its turn would come before its parents have ended, or its slot would be nobody's. Behind the leases."""
    limits.step_out(connection, [child], limits.BY_PAUSE if project.paused else limits.UNPARKED)
    return to_queue(rt, connection, give_up(rt, connection, [child]))


def _check_waits(connection: Connection, child: str, row: Lease | None) -> None:
    if row is None:
        raise BadTask(f"task {child} has ended: only one that waits can be given more to wait for")
    if row.holder > QUEUE or leases.parked(connection, [child]):
        raise BadTask(f"task {child} has begun: only one that waits can be given more to wait for")


def _check_policy(child: str, known: Mapping[str, bool], regardless: bool) -> None:
    for parent, stands in known.items():
        if stands is not regardless:
            policy = "run" if stands else "abandon"
            raise BadTask(f"task {child} comes after {parent} already, with if_failed={policy!r}: that stays as it is")


def _check_no_circle(connection: Connection, child: str, parents: Sequence[str]) -> None:
    if child in parents:
        raise BadTask(f"task {child} cannot come after itself")
    upward: dict[str, list[str]] = {child: list(parents)}
    for below, above in edges.above(connection, parents):
        upward.setdefault(below, []).append(above)
    circle = after.way(child, child, lambda task_id: upward.get(task_id, ()))
    if circle:
        raise BadTask(after.in_a_circle(circle))
