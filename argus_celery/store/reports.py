"""What a person, a result or a running task wants to read. Nothing here locks or writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.records import (
    NOBODY,
    QUEUE,
    AttemptInfo,
    AttemptOutcome,
    ProjectInfo,
    ProjectStatus,
    TaskInfo,
    TaskState,
)
from argus_celery.store.engine import Store
from argus_celery.store.schema import attempts, leases, projects, tasks

# One expression says what state a task is in, for every report: the outcome, or what its lease row shows.
task_state = sa.case(
    (tasks.c.outcome.is_not(None), tasks.c.outcome),
    (leases.c.holder == QUEUE, TaskState.QUEUED),
    (leases.c.holder > NOBODY, TaskState.RUNNING),
    else_=TaskState.WAITING,
).label("state")

_TASKS = tasks.outerjoin(leases, leases.c.task_id == tasks.c.id).join(projects, projects.c.id == tasks.c.project_id)


@dataclass(frozen=True, slots=True)
class ResultRow:
    """What ``AsyncResult`` is made of."""

    state: TaskState
    retries: int
    result: bytes | None
    error: str | None
    name: str
    losses: int
    finished_at: int | None


@dataclass(frozen=True, slots=True)
class ClaimDetails:
    """What ``current`` tells of the run in hand, beyond its claim."""

    project: str
    key: str | None
    attempt: int
    previous: AttemptInfo | None


@dataclass(frozen=True, slots=True)
class Pulse:
    """Is there work left in a project?"""

    status: ProjectStatus
    alive: bool
    """Some task of it has not ended."""


def project_info(store: Store, name: str) -> ProjectInfo | None:
    """One project with its tasks counted by state; None if there is none of this name."""
    found = store.read(lambda connection: _projects(connection, projects.c.name == name))
    return found[0] if found else None


def all_projects(store: Store, limit: int = 1000) -> list[ProjectInfo]:
    """The newest projects first."""
    return store.read(lambda connection: _projects(connection, sa.true(), limit))


def _projects(connection: Connection, condition: Any, limit: int = 1) -> list[ProjectInfo]:
    rows = connection.execute(sa.select(projects).where(condition).order_by(projects.c.id.desc()).limit(limit)).all()
    counts = _counts(connection, [row.id for row in rows])
    return [
        ProjectInfo(
            name=row.name,
            status=ProjectStatus(row.status),
            paused=row.paused_at is not None,
            created_at=row.created_at,
            closed_at=row.closed_at,
            finished_at=row.finished_at,
            counts=counts[row.id],
        )
        for row in rows
    ]


def _counts(connection: Connection, ids: Sequence[int]) -> dict[int, dict[TaskState, int]]:
    """Ended tasks by an index of outcomes, live ones by their leases: no wide row is read."""
    counts: dict[int, dict[TaskState, int]] = {project_id: dict.fromkeys(TaskState, 0) for project_id in ids}
    ended = sa.select(tasks.c.project_id, tasks.c.outcome, sa.func.count())
    ended = ended.where(tasks.c.project_id.in_(ids), tasks.c.outcome.is_not(None))
    for project_id, outcome, count in connection.execute(ended.group_by(tasks.c.project_id, tasks.c.outcome)):
        counts[project_id][TaskState(outcome)] = count
    held = sa.case((leases.c.holder == QUEUE, 1), (leases.c.holder > NOBODY, 2), else_=0).label("held")
    alive = sa.select(leases.c.project_id, held, sa.func.count()).where(leases.c.project_id.in_(ids))
    by_held = (TaskState.WAITING, TaskState.QUEUED, TaskState.RUNNING)
    for project_id, kind, count in connection.execute(alive.group_by(leases.c.project_id, held)):
        counts[project_id][by_held[kind]] = count
    return counts


def pulse(store: Store, name: str) -> Pulse | None:
    """One cheap statement; None if there is no project of this name."""
    alive = sa.exists().where(leases.c.project_id == projects.c.id).label("alive")
    query = sa.select(projects.c.status, alive).where(projects.c.name == name)
    row = store.statement(lambda connection: connection.execute(query).first())
    return None if row is None else Pulse(ProjectStatus(row.status), bool(row.alive))


def totals(store: Store) -> dict[TaskState, int]:
    """All tasks of the store by state."""

    def read(connection: Connection) -> dict[TaskState, int]:
        ids = list(connection.execute(sa.select(projects.c.id)).scalars())
        counted = _counts(connection, ids)
        return {state: sum(counts[state] for counts in counted.values()) for state in TaskState}

    return store.read(read)


def project_tasks(store: Store, name: str, state: TaskState | None = None, limit: int = 100) -> list[TaskInfo]:
    """Tasks of a project, oldest first."""
    query = _task_query().where(projects.c.name == name).order_by(tasks.c.created_at, tasks.c.id).limit(limit)
    if state is not None:
        query = query.where(task_state == state)
    return store.statement(lambda connection: [_task(row) for row in connection.execute(query)])


def task_info(store: Store, task_id: str) -> TaskInfo | None:
    query = _task_query().where(tasks.c.id == task_id)
    return next(iter(store.statement(lambda connection: [_task(row) for row in connection.execute(query)])), None)


def _task_query() -> sa.Select[Any]:
    t, lease = tasks.c, leases.c
    columns = (t.id, t.name, t.key, t.queue, t.attempts, t.losses, t.retries, t.created_at, t.finished_at, t.error)
    token = sa.func.coalesce(lease.token, t.fence).label("token")
    holder = sa.func.coalesce(lease.holder, "").label("holder")
    return sa.select(*columns, projects.c.name.label("project"), task_state, holder, token).select_from(_TASKS)


def _task(row: Any) -> TaskInfo:
    return TaskInfo(**{**row._mapping, "state": TaskState(row.state)})


def attempt_rows(store: Store, task_id: str) -> list[AttemptInfo]:
    """The ended runs of a task in the order of their tokens."""
    query = sa.select(attempts).where(attempts.c.task_id == task_id).order_by(attempts.c.token)
    return store.statement(lambda connection: [_attempt(row) for row in connection.execute(query)])


def _attempt(row: Any) -> AttemptInfo:
    return AttemptInfo(**{**row._mapping, "outcome": AttemptOutcome(row.outcome)})


def claim_details(store: Store, task_id: str) -> ClaimDetails | None:
    """For a running task: its project, key, the number of this attempt, and how the last one ended."""

    def read(connection: Connection) -> ClaimDetails | None:
        columns = (projects.c.name, tasks.c.key, tasks.c.attempts)
        row = connection.execute(sa.select(*columns).select_from(_TASKS).where(tasks.c.id == task_id)).first()
        if row is None:
            return None
        last = sa.select(attempts).where(attempts.c.task_id == task_id).order_by(attempts.c.token.desc()).limit(1)
        previous = next((_attempt(one) for one in connection.execute(last)), None)
        return ClaimDetails(row.name, row.key, row.attempts + 1, previous)

    return store.read(read)


def results(store: Store, ids: Sequence[str]) -> dict[str, ResultRow]:
    """State and result of each of these tasks that the store knows."""
    t = tasks.c
    columns = (t.id, task_state, t.retries, t.result, t.error, t.name, t.losses, t.finished_at)
    source = tasks.outerjoin(leases, leases.c.task_id == t.id)
    query = sa.select(*columns).select_from(source).where(t.id.in_(ids))
    rows = store.statement(lambda connection: connection.execute(query).all())
    return {
        row.id: ResultRow(
            state=TaskState(row.state),
            retries=row.retries,
            result=None if row.result is None else bytes(row.result),
            error=row.error,
            name=row.name,
            losses=row.losses,
            finished_at=row.finished_at,
        )
        for row in rows
    }
