"""Lists that a person filters: projects and tasks, by state and by name. Nothing here locks or writes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.records import Message, ProjectInfo, ProjectStatus, TaskInfo, TaskState
from argus_celery.store.engine import Store
from argus_celery.store.envelope import unseal
from argus_celery.store.names import is_possible
from argus_celery.store.reports import HELD_BY, by_most_alive, project_infos, read_tasks, task_query, task_state
from argus_celery.store.schema import attempts, leases, projects, tasks

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ProjectFilter:
    """Which projects; what is left out does not matter. ``name`` may hold ``*`` and ``?``."""

    name: str | None = None
    statuses: Collection[ProjectStatus] = ()
    paused: bool | None = None


class ProjectOrder(StrEnum):
    CREATED = "created"
    FINISHED = "finished"
    NAME = "name"
    ALIVE = "alive"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Which tasks; what is left out does not matter. ``name`` and ``key`` may hold ``*`` and ``?``."""

    project: str | None = None
    states: Collection[TaskState] = ()
    name: str | None = None
    queue: str | None = None
    key: str | None = None

    @property
    def narrows(self) -> bool:
        """Does it leave out tasks of a project?"""
        return bool(self.states or self.name or self.queue or self.key)


class TaskOrder(StrEnum):
    OLDEST = "oldest"
    NEWEST = "newest"
    ENDED = "ended"
    """The last to end first."""


def list_projects(
    store: Store, wanted: ProjectFilter, limit: int, order: ProjectOrder = ProjectOrder.CREATED
) -> list[ProjectInfo]:
    """The newest first, or the most tasks alive, or failed, or by name."""
    where = sa.and_(sa.true(), *_of_projects(store, wanted))
    return store.read(lambda connection: project_infos(connection, where, limit, _project_order(order)))


def _of_projects(store: Store, wanted: ProjectFilter) -> Iterator[sa.ColumnElement[bool]]:
    c = projects.c
    if wanted.name is not None:
        yield store.dialect.glob(c.name, wanted.name)
    if wanted.statuses:
        yield c.status.in_(wanted.statuses)
    if wanted.paused is not None:
        parked = sa.and_(c.paused_at.is_not(None), c.status.in_(status for status in ProjectStatus if status.live))
        yield parked if wanted.paused else sa.not_(parked)


def _project_order(order: ProjectOrder) -> tuple[Any, ...]:
    c = projects.c
    bad = tasks.c.outcome.in_((TaskState.FAILED, TaskState.DEAD))
    failed = sa.select(sa.func.count()).where(tasks.c.project_id == c.id, bad).scalar_subquery()
    return {
        ProjectOrder.CREATED: (),
        ProjectOrder.FINISHED: (sa.func.coalesce(c.finished_at, 0).desc(),),
        ProjectOrder.NAME: (c.name,),
        ProjectOrder.ALIVE: by_most_alive(),
        ProjectOrder.FAILED: (failed.desc(),),
    }[order]


def project_names(store: Store, like: str = "*", limit: int = 1000) -> list[str]:
    """Names of projects, the newest first, without their tasks being counted."""
    query = sa.select(projects.c.name).where(store.dialect.glob(projects.c.name, like))
    query = query.order_by(projects.c.id.desc()).limit(limit)
    return store.statement(lambda connection: list(connection.execute(query).scalars()))


def list_tasks(store: Store, wanted: TaskFilter, limit: int, order: TaskOrder = TaskOrder.OLDEST) -> list[TaskInfo]:
    query = task_query().where(*_of_tasks(store, wanted)).order_by(*_task_order(order)).limit(limit)
    return store.statement(lambda connection: read_tasks(connection, query))


def _of_tasks(store: Store, wanted: TaskFilter) -> Iterator[sa.ColumnElement[bool]]:
    c = tasks.c
    if wanted.project is not None:
        yield projects.c.name == wanted.project
    if wanted.states:
        yield _in_one_of(wanted.states)
    if wanted.name is not None:
        yield store.dialect.glob(c.name, wanted.name)
    if wanted.queue is not None:
        yield c.queue == wanted.queue
    if wanted.key is not None:
        yield store.dialect.glob(c.key, wanted.key)


def _in_one_of(states: Collection[TaskState]) -> sa.ColumnElement[bool]:
    """By the columns that have an index where all have ended, or none has."""
    if all(state.ended for state in states):
        return tasks.c.outcome.in_(states)
    if not any(state.ended for state in states):
        return sa.or_(*(HELD_BY[state] for state in set(states)))
    return task_state.element.in_(states)


def _task_order(order: TaskOrder) -> tuple[Any, ...]:
    c = tasks.c
    return {
        TaskOrder.OLDEST: (c.created_at, c.number, c.id),
        TaskOrder.NEWEST: (c.created_at.desc(), c.number.desc(), c.id.desc()),
        TaskOrder.ENDED: (c.finished_at.desc(), c.id),
    }[order]


def task_ids(store: Store, wanted: TaskFilter) -> dict[str, list[str]]:
    """All that match: ids by project, the oldest first."""
    query = sa.select(projects.c.name, tasks.c.id).select_from(
        tasks.outerjoin(leases, leases.c.task_id == tasks.c.id).join(projects, projects.c.id == tasks.c.project_id)
    )
    query = query.where(*_of_tasks(store, wanted)).order_by(*_task_order(TaskOrder.OLDEST))
    found: dict[str, list[str]] = {}
    for name, task_id in store.statement(lambda connection: connection.execute(query).all()):
        found.setdefault(name, []).append(task_id)
    return found


def tasks_beginning(store: Store, begun: str, project: str | None, limit: int) -> list[TaskInfo]:
    """Tasks whose id begins so; one that is called so whole stands first."""
    c = tasks.c
    if not is_possible(begun) or "*" in begun or "?" in begun:
        return []
    query = task_query().where(store.dialect.glob(c.id, f"{begun}*"), *_of_tasks(store, TaskFilter(project)))
    query = query.order_by(sa.case((c.id == begun, 0), else_=1), c.id).limit(limit)
    return store.statement(lambda connection: read_tasks(connection, query))


@dataclass(frozen=True, slots=True)
class LastRun:
    """Of a task that has run: who ran it last, and for how many milliseconds it is known to have."""

    node: str | None
    ms: int | None


def last_runs(store: Store, ids: Sequence[str]) -> dict[str, LastRun]:
    """The last of the runs of these tasks that have ended."""
    a = attempts.c
    newest = sa.select(a.task_id, sa.func.max(a.token).label("token")).group_by(a.task_id)
    known = (sa.func.coalesce(a.seen_at, a.finished_at) - a.started_at).label("ms")

    def read(connection: Connection, some: Sequence[str]) -> Iterator[tuple[str, LastRun]]:
        last = newest.where(a.task_id.in_(some)).subquery("last")
        same = sa.and_(last.c.task_id == a.task_id, last.c.token == a.token)
        for row in connection.execute(sa.select(a.task_id, a.node, known).join(last, same)):
            yield row.task_id, LastRun(row.node, None if row.ms is None else max(row.ms, 0))

    return _by_id(store, ids, read)


def messages_of(store: Store, ids: Sequence[str]) -> dict[str, Message]:
    """The stored messages of these tasks; one of which only a result is kept has none."""
    c = tasks.c
    query = sa.select(c.id, c.message, c.body).where(c.queue != "")

    def read(connection: Connection, some: Sequence[str]) -> Iterator[tuple[str, Message]]:
        for row in connection.execute(query.where(c.id.in_(some))):
            yield row.id, unseal(row.message, row.body)

    return _by_id(store, ids, read)


def _by_id(
    store: Store, ids: Sequence[str], read: Callable[[Connection, Sequence[str]], Iterable[tuple[str, T]]]
) -> dict[str, T]:
    some = [ids[start : start + 500] for start in range(0, len(ids), 500)]
    return store.read(lambda connection: dict(pair for piece in some for pair in read(connection, piece)))


def task_names(store: Store, project: str | None = None, limit: int = 1000) -> list[str]:
    """Which names tasks have, looked for among the newest ``limit`` of them."""
    newest = sa.select(tasks.c.name).order_by(tasks.c.created_at.desc()).limit(limit)
    if project is not None:
        newest = newest.join(projects, projects.c.id == tasks.c.project_id).where(projects.c.name == project)
    return sorted(set(store.statement(lambda connection: connection.execute(newest).scalars().all())))
