"""Revive: what failed, died or expired is put back, and its canvas goes on from there.

A task keeps its id, message and attempts and gets a new lease above its fence, so that no older copy or run of it can
write. What only waited for it (the rest of a chain, the body of a chord) comes back by itself, when the completion that
leads to it records it once more (``flow.enqueue.record``). What was given up for coming after it waits again at once
(``flow.come_back``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from argus_celery.config import did_you_mean
from argus_celery.errors import NotRetriable, ProjectClosed, TaskNotFound
from argus_celery.flow.come_back import Knowledge, alone, bring_back, live_again
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.enqueue import past_rivals
from argus_celery.flow.runtime import Runtime
from argus_celery.flow.steer import BATCH, locked
from argus_celery.records import ProjectStatus, TaskState
from argus_celery.store import projects, reports, tasks
from argus_celery.store.names import fits, is_possible
from argus_celery.store.projects import Project

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection


@dataclass(frozen=True, slots=True)
class Which:
    """Which of the tasks that failed, died or expired: all of these must hold."""

    states: Collection[TaskState] = tasks.RETRIABLE
    name: str | None = None
    """``*`` and ``?`` are wild."""
    ids: Collection[str] | None = None
    """None: all. Who names none gets none."""

    def chosen(self, names: Mapping[str, str]) -> list[str]:
        return [
            id_
            for id_, name in names.items()
            if (self.name is None or fits(name, self.name)) and (self.ids is None or id_ in self.ids)
        ]


ALL = Which()


def retry_failed(rt: Runtime, name: str, app: Knowledge, which: Which = ALL) -> list[str]:
    """Put back all that failed, died or expired, or those of them that are named; returns the ids.

    One transaction per 500. Raises ``ProjectClosed`` if the project was cancelled. Where nothing is as it was named it
    raises ``TaskNotFound`` or ``NotRetriable``, with nothing written.
    """
    names = locked(rt, name, lambda connection, project: _names(connection, project, which))
    ids = which.chosen(names)
    _check_found(rt, name, which, names, ids)
    put_back: list[str] = []
    for start in range(0, len(ids), BATCH):
        put_back += _put_back(rt, name, ids[start : start + BATCH], app)
    if put_back:
        dispatch(rt)
    return put_back


def retry(rt: Runtime, name: str, task_id: str, app: Knowledge) -> bool:
    """Put back this task; False if it is alive already.

    Raises ``TaskNotFound``, ``NotRetriable`` that says why, and ``ProjectClosed`` if the project was cancelled.
    """
    if _put_back(rt, name, [one for one in [task_id] if is_possible(one)], app):
        dispatch(rt)
        return True
    explain(rt, name, task_id)
    return False


def _names(connection: Connection, project: Project, which: Which) -> dict[str, str]:
    check_not_cancelled(project)
    return tasks.retriable_names(connection, project.id, which.states)


def _check_found(rt: Runtime, name: str, which: Which, names: Mapping[str, str], chosen: Collection[str]) -> None:
    for missing in sorted(set(which.ids or ()) - set(names)):
        explain(rt, name, missing, states=which.states)
    meant = names if which.ids is None else set(which.ids) & set(names)
    if which != ALL and not chosen and (meant or which.ids is None):
        states = " or ".join(sorted(which.states))
        near = did_you_mean(which.name, sorted(set(names.values()))) if which.name and names else ""
        named = f" of the name {which.name!r}" if which.name is not None else ""
        raise TaskNotFound(f"no task{named} in project {name!r} is {states}: nothing is put back.{near}")


def _put_back(rt: Runtime, name: str, ids: Collection[str], app: Knowledge) -> list[str]:
    def write(connection: Connection, project: Project) -> list[str]:
        check_not_cancelled(project)
        found = alone(connection, tasks.retriable(connection, project.id, ids))
        if not found:
            return []
        if not project.status.live:
            projects.go_on(connection, project.id)
        live_again(rt, connection, project, found, app)
        leading = [one.id for one in found if one.leads]
        if leading:
            bring_back(rt, connection, project, leading, app)
        return [one.id for one in found]

    # One of the kind of a unique task may be recorded in another project since the look: that one lives.
    return past_rivals(lambda: locked(rt, name, write))


def check_not_cancelled(project: Project) -> None:
    if project.status is ProjectStatus.CANCELLED:
        raise ProjectClosed(
            f"project {project.name!r} was cancelled, and nothing of it is put back: reopen it first, or enqueue it in"
            " another project"
        )


def explain(
    rt: Runtime,
    name: str,
    task_id: str,
    if_alive: str | None = None,
    states: Collection[TaskState] = tasks.RETRIABLE,
) -> None:
    """Raise why the task cannot be put back; if it is alive, only where there is something to say of that."""
    info = reports.task_info(rt.store, task_id)
    if info is None or info.project != name:
        raise TaskNotFound(f"project {name!r} has no task {task_id!r}")
    if not info.state.ended:
        if if_alive is not None:
            raise NotRetriable(f"{info.name}[{task_id}] {if_alive}")
        return
    if info.state in tasks.RETRIABLE and info.state not in states:
        raise NotRetriable(f"{info.name}[{task_id}] is {info.state}, not {' or '.join(sorted(states))}")
    twin = rt.store.statement(lambda connection: tasks.alive_twin(connection, task_id))
    if twin is not None:
        raise NotRetriable(
            f"{info.name}[{task_id}] is unique, and {twin} of its kind is alive: retry it when that has ended"
        )
    if info.state in tasks.RETRIABLE:
        raise NotRetriable(
            f"{info.name}[{task_id}] never ran, because what leads to it failed: retry that one, and this follows"
            " (what was revoked stays so: enqueue both anew)"
        )
    why = {
        TaskState.SUCCEEDED: "has succeeded: restart it, or enqueue it anew, to have it done once more",
        TaskState.CANCELLED: "was revoked, and stays so: enqueue it anew",
    }
    raise NotRetriable(f"{info.name}[{task_id}] {why[info.state]}")
