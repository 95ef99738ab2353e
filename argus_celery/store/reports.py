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
from argus_celery.store import limits, waits
from argus_celery.store.engine import Store
from argus_celery.store.holders import nodes
from argus_celery.store.names import is_possible
from argus_celery.store.projects import meta_of, on_failure
from argus_celery.store.schema import attempts, chords, edges, leases, projects, tasks

# One expression says what state a task is in, for every report: the outcome, or what its lease row shows.
task_state = sa.case(
    (tasks.c.outcome.is_not(None), tasks.c.outcome),
    (leases.c.holder == QUEUE, TaskState.QUEUED),
    (leases.c.holder > NOBODY, TaskState.RUNNING),
    else_=TaskState.WAITING,
).label("state")

ATTEMPT = tuple(attempts.c[name] for name in AttemptInfo.__dataclass_fields__)
# The same of one that has not ended, as an index of leases has it.
HELD_BY = {
    TaskState.WAITING: leases.c.holder == NOBODY,
    TaskState.QUEUED: leases.c.holder == QUEUE,
    TaskState.RUNNING: leases.c.holder > QUEUE,
}

_TASKS = tasks.outerjoin(leases, leases.c.task_id == tasks.c.id).join(projects, projects.c.id == tasks.c.project_id)


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
    """Some task of it has not ended, or a chord of it is full and its body not recorded yet."""


def project_info(store: Store, name: str) -> ProjectInfo | None:
    """One project with its tasks counted by state; None if there is none of this name."""
    if not is_possible(name):
        return None
    found = store.read(lambda connection: project_infos(connection, projects.c.name == name))
    return found[0] if found else None


def all_projects(store: Store, limit: int = 1000) -> list[ProjectInfo]:
    """The newest projects first."""
    return store.read(lambda connection: project_infos(connection, sa.true(), limit))


def project_infos(
    connection: Connection, condition: sa.ColumnElement[bool], limit: int = 1, order: Sequence[Any] = ()
) -> list[ProjectInfo]:
    """Projects with their tasks counted, the newest first where no other order is given."""
    query = sa.select(projects).where(condition).order_by(*order, projects.c.id.desc()).limit(limit)
    rows = connection.execute(query).all()
    counts = _counts(connection, [row.id for row in rows])
    suspended = waits.counts(connection, [row.id for row in rows])
    bounds = limits.standing_of(connection, [f"project {row.name}" for row in rows if row.limited])
    return [
        ProjectInfo(
            name=row.name,
            status=ProjectStatus(row.status),
            paused=row.paused_at is not None,
            created_at=row.created_at,
            closed_at=row.closed_at,
            finished_at=row.finished_at,
            counts=counts[row.id],
            on_failure=on_failure(row.policy),
            priority=row.priority,
            weight=row.weight,
            deadline_at=row.deadline_at,
            reason=row.reason,
            meta=meta_of(row.meta),
            suspended=suspended.get(row.id, 0),
            limit=bounds.get(f"project {row.name}"),
        )
        for row in rows
    ]


def by_most_alive() -> tuple[Any, ...]:
    """An order of projects: those with the most tasks that have not ended first."""
    alive = sa.select(sa.func.count()).where(leases.c.project_id == projects.c.id).scalar_subquery()
    return (alive.desc(),)


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
    lease = sa.exists().where(leases.c.project_id == projects.c.id)
    chord = sa.exists().where(chords.c.project_id == projects.c.id, chords.c.owed > 0)
    query = sa.select(projects.c.status, sa.or_(lease, chord).label("alive")).where(projects.c.name == name)
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
    query = (
        task_query()
        .where(projects.c.name == name)
        .order_by(tasks.c.created_at, tasks.c.number, tasks.c.id)
        .limit(limit)
    )
    if state is not None:
        query = query.where(task_state == state)
    return store.statement(lambda connection: read_tasks(connection, query))


def task_info(store: Store, task_id: str) -> TaskInfo | None:
    if not is_possible(task_id):
        return None
    query = task_query().where(tasks.c.id == task_id)
    return next(iter(store.statement(lambda connection: read_tasks(connection, query))), None)


def task_query() -> sa.Select[Any]:
    """Every task of the store, as ``read_tasks`` reads it."""
    t, lease = tasks.c, leases.c
    columns = (t.id, t.name, t.key, t.queue, t.attempts, t.losses, t.retries, t.created_at, t.finished_at, t.error)
    token = sa.func.coalesce(lease.token, t.fence).label("token")
    holder = sa.func.coalesce(lease.holder, "").label("holder")
    where = (projects.c.name.label("project"), lease.waits, lease.paused, lease.eligible_at, lease.started_at)
    return sa.select(*columns, *where, task_state, holder, token).select_from(_TASKS)


def read_tasks(connection: Connection, query: sa.Select[Any]) -> list[TaskInfo]:
    """What a ``task_query`` finds, with what each task waits for."""
    rows = connection.execute(query).all()
    waits_for = _waits_for(connection, [row.id for row in rows if row.waits])
    begun = [row.id for row in rows if row.attempts and row.state == TaskState.WAITING]
    suspended = waits.of_tasks(connection, begun) if begun else {}
    lines = limits.lines_of(connection, [row.id for row in rows if row.paused == limits.BY_LIMIT])
    running = {row.holder for row in rows if row.state == TaskState.RUNNING}
    names = nodes(connection, running) if running else {}
    return [
        _task(
            row,
            waits_for=tuple(waits_for.get(row.id, ())),
            suspended=suspended.get(row.id),
            limit=lines.get(row.id),
            node=names.get(row.holder),
        )
        for row in rows
    ]


def _waits_for(connection: Connection, ids: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for start in range(0, len(ids), 500):
        some = (edges.c.child_id.in_(ids[start : start + 500]), edges.c.met == 0)
        query = sa.select(edges.c.child_id, edges.c.parent_id).where(*some)
        for child_id, parent_id in connection.execute(query.order_by(edges.c.child_id, edges.c.position)):
            found.setdefault(child_id, []).append(parent_id)
    return found


def _task(row: Any, **found: Any) -> TaskInfo:
    columns = {name: value for name, value in row._mapping.items() if name not in ("waits", "paused", "eligible_at")}
    free = row.state == TaskState.WAITING and not row.waits and not row.paused and row.eligible_at < waits.NEVER
    due_at = row.eligible_at if free else None
    parked = row.state == TaskState.WAITING and row.paused == limits.BY_PAUSE
    return TaskInfo(**{**columns, "state": TaskState(row.state)}, **found, due_at=due_at, parked=parked)


def parents_of(store: Store, task_id: str) -> list[str]:
    """The tasks that this one comes after, in the order in which they were given."""
    query = sa.select(edges.c.parent_id).where(edges.c.child_id == task_id).order_by(edges.c.position)
    return store.statement(lambda connection: list(connection.execute(query).scalars()))


def attempt_rows(store: Store, task_id: str) -> list[AttemptInfo]:
    """The ended runs of a task in the order of their tokens."""
    query = sa.select(*ATTEMPT).where(attempts.c.task_id == task_id).order_by(attempts.c.token)
    return store.statement(lambda connection: [attempt_of(row) for row in connection.execute(query)])


def attempt_of(row: Any) -> AttemptInfo:
    values = {name: row._mapping[name] for name in AttemptInfo.__dataclass_fields__}
    return AttemptInfo(**{**values, "outcome": AttemptOutcome(row.outcome), "died": bool(row.died)})


def claim_details(store: Store, task_id: str) -> ClaimDetails | None:
    """For a running task: its project, key, the number of this attempt, and how the last one ended."""

    def read(connection: Connection) -> ClaimDetails | None:
        columns = (projects.c.name, tasks.c.key, tasks.c.attempts)
        row = connection.execute(sa.select(*columns).select_from(_TASKS).where(tasks.c.id == task_id)).first()
        if row is None:
            return None
        last = sa.select(*ATTEMPT).where(attempts.c.task_id == task_id).order_by(attempts.c.token.desc()).limit(1)
        previous = next((attempt_of(one) for one in connection.execute(last)), None)
        return ClaimDetails(row.name, row.key, row.attempts + 1, previous)

    return store.read(read)
