"""Restart: a task that has ended runs once more, and with it all that follows it; what else is done is kept.

What follows it is given up as if the task had failed, and then comes back as after a retry: the rest of a chain and the
body of a chord when the completion that leads to them records them anew, what comes ``after`` it at once, waiting.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from argus_celery.flow.come_back import Knowledge, alone, bring_back, live_again
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.end import end, follow_up
from argus_celery.flow.enqueue import past_rivals
from argus_celery.flow.pieces import pieces
from argus_celery.flow.revive import check_not_cancelled, explain
from argus_celery.flow.runtime import Runtime
from argus_celery.flow.steer import locked
from argus_celery.flow.wake import Released
from argus_celery.records import QUEUE, AttemptOutcome, TaskState
from argus_celery.store import attempts, edges, leases, projects, steps, tasks
from argus_celery.store.names import is_possible
from argus_celery.store.projects import Project
from argus_celery.store.tasks import Ending

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection


def restart(rt: Runtime, name: str, task_id: str, app: Knowledge) -> list[str]:
    """Run this task again, and return the ids of all that runs again: its own, then what follows it.

    Raises ``TaskNotFound``, ``NotRetriable`` that says why, and ``ProjectClosed`` if the project was cancelled.
    """

    def write(connection: Connection, project: Project) -> tuple[list[str], Released, bool] | None:
        check_not_cancelled(project)
        found = alone(connection, tasks.restartable(connection, project.id, task_id))
        if not found:
            return None
        following = list(_following(connection, project.id, task_id, app))
        why = f"{found[0].name}[{task_id}], which leads to it, was restarted"
        released, stopped = _give_up(rt, connection, following, why)
        if not project.status.live:
            projects.go_on(connection, project.id)
        live_again(rt, connection, project, found, app)
        for some in pieces([task_id, *following]):
            steps.forget(connection, some)
        bring_back(rt, connection, project, [task_id], app)
        return [task_id, *following], released, stopped

    written = past_rivals(lambda: locked(rt, name, write)) if is_possible(task_id) else None
    if written is None:
        explain(rt, name, task_id, "is alive: it can be restarted when it has ended")
        raise AssertionError("unreachable")
    ids, released, stopped = written
    follow_up(rt, released)
    dispatch(rt)
    if stopped:
        rt.ring()
    return ids


def _following(connection: Connection, project_id: int, task_id: str, app: Knowledge) -> dict[str, None]:
    """What was recorded of what follows the task, directly or not, in the order in which it was found."""
    found: dict[str, None] = {}
    frontier = [task_id]
    while frontier:
        below: list[str] = []
        for some in pieces(frontier):
            below += [id_ for message in tasks.messages(connection, some).values() for id_ in app.leads_to(message)]
            below += edges.children_of(connection, some)
        new = [id_ for id_ in dict.fromkeys(below) if id_ != task_id and id_ not in found]
        frontier = [id_ for some in pieces(new) for id_ in tasks.recorded(connection, project_id, some)]
        found |= dict.fromkeys(frontier)
    return found


def _give_up(rt: Runtime, connection: Connection, ids: Collection[str], why: str) -> tuple[Released, bool]:
    """What lives of these tasks ends, what runs included; what had ended is given up. What was revoked stays so."""
    total, stopped = Released(), False
    for some in pieces(sorted(ids)):
        rows = leases.lock_all(rt.store, connection, some)
        running = {row.task_id for row in rows if row.holder > QUEUE}
        if running:
            attempts.append(rt.store, connection, running, AttemptOutcome.CANCELLED, why)
        given_up = [
            Ending(row.task_id, row.token, TaskState.FAILED, why, abandoned=True, limited=row.limited) for row in rows
        ]
        endings = [replace(one, ran=one.task_id in running) for one in given_up]
        released = end(rt, connection, endings)
        total.dispatches += released.dispatches
        stopped |= bool(running)
        tasks.give_up(connection, some, why)
    return total, stopped
