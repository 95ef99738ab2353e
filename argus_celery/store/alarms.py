"""Rows of alarms: what is still to be done to a project, because a task of it failed or it was cancelled."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.records import ProjectStatus, TaskState
from argus_celery.store.engine import Store
from argus_celery.store.schema import alarms, projects, tasks

c = alarms.c

CANCEL = ""
"""Instead of a task's id: the project was cancelled, and rows of it may still have to be ended."""
BAD = (TaskState.FAILED, TaskState.DEAD, TaskState.EXPIRED)


@dataclass(frozen=True, slots=True)
class Alarm:
    """``name`` and ``outcome`` of a task that has failed for good; None where it lives again, or is gone."""

    task_id: str
    name: str | None
    outcome: TaskState | None


def sound(store: Store, connection: Connection, rows: Collection[tuple[int, str]]) -> None:
    """Note these (project, task)s."""
    values = [{"project_id": project_id, "task_id": task_id} for project_id, task_id in sorted(rows)]
    store.dialect.insert_new(connection, alarms, values)


def standing(connection: Connection, project_id: int, limit: int = 500) -> list[Alarm]:
    failed = sa.and_(tasks.c.id == c.task_id, tasks.c.outcome.in_(BAD))
    query = sa.select(c.task_id, tasks.c.name, tasks.c.outcome).select_from(alarms.outerjoin(tasks, failed))
    rows = connection.execute(query.where(c.project_id == project_id).order_by(c.task_id).limit(limit))
    return [Alarm(r.task_id, r.name, TaskState(r.outcome) if r.outcome else None) for r in rows]


def silence(connection: Connection, project_id: int, ids: Collection[str]) -> None:
    """Only those that were looked at: one more may be on its way."""
    if ids:
        connection.execute(sa.delete(alarms).where(c.project_id == project_id, c.task_id.in_(ids)))


def projects_of(connection: Connection, limit: int) -> list[int]:
    """The projects that something is to be done to."""
    return list(connection.execute(sa.select(c.project_id).distinct().order_by(c.project_id).limit(limit)).scalars())


def is_overdue(store: Store) -> tuple[sa.ColumnElement[bool], ...]:
    """Of a project: it is live, and its deadline is over."""
    return projects.c.status.in_((ProjectStatus.OPEN, ProjectStatus.CLOSED)), projects.c.deadline_at <= store.now
