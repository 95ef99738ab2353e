"""Rows of projects: found by name, steered under an exclusive lock."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.records import ProjectStatus, TaskState
from argus_celery.store.engine import Store
from argus_celery.store.schema import leases, projects, tasks


@dataclass(frozen=True, slots=True)
class Project:
    id: int
    name: str
    status: ProjectStatus
    paused: bool


def find(connection: Connection, name: str) -> Project | None:
    return _one(connection, projects.c.name == name)


def by_id(connection: Connection, project_id: int) -> Project | None:
    return _one(connection, projects.c.id == project_id)


def _one(connection: Connection, condition: sa.ColumnElement[bool]) -> Project | None:
    found = _select(connection, condition)
    return found[0] if found else None


def _select(connection: Connection, condition: sa.ColumnElement[bool]) -> list[Project]:
    c = projects.c
    rows = connection.execute(sa.select(c.id, c.name, c.status, c.paused_at).where(condition))
    return [Project(row.id, row.name, ProjectStatus(row.status), row.paused_at is not None) for row in rows]


def shared(store: Store, connection: Connection, ids: Collection[int]) -> dict[int, Project]:
    """Lock these projects against steering until the commit, and read them."""
    for project_id in sorted(ids):
        store.dialect.lock_project(connection, project_id, exclusive=False)
    return read(connection, ids)


def read(connection: Connection, ids: Collection[int]) -> dict[int, Project]:
    """These projects as committed."""
    return {project.id: project for project in _select(connection, projects.c.id.in_(ids))} if ids else {}


def exclusive(store: Store, connection: Connection, project_id: int) -> Project | None:
    """Lock a project for steering, and read it."""
    store.dialect.lock_project(connection, project_id, exclusive=True)
    return by_id(connection, project_id)


def insert(store: Store, connection: Connection, name: str) -> None:
    """Insert an open project; ``DuplicateRow`` if the name is taken."""
    connection.execute(sa.insert(projects).values(name=name, status=ProjectStatus.OPEN, created_at=store.now))


def close(store: Store, connection: Connection, project_id: int) -> None:
    _update(connection, project_id, status=ProjectStatus.CLOSED, closed_at=store.now)


def finish(store: Store, connection: Connection, project_id: int, status: ProjectStatus) -> None:
    _update(connection, project_id, status=status, finished_at=store.now)


def pause(store: Store, connection: Connection, project_id: int) -> None:
    _update(connection, project_id, paused_at=store.now)


def resume(connection: Connection, project_id: int) -> None:
    _update(connection, project_id, paused_at=None)


def _update(connection: Connection, project_id: int, **values: object) -> None:
    connection.execute(sa.update(projects).where(projects.c.id == project_id).values(**values))


def has_lease(connection: Connection, project_id: int) -> bool:
    """Is any task of the project still alive?"""
    query = sa.select(leases.c.task_id).where(leases.c.project_id == project_id).limit(1)
    return connection.execute(query).first() is not None


def owes_errbacks(connection: Connection, project_id: int) -> bool:
    """Is there a dead letter whose errbacks are yet to be recorded? They belong to the project."""
    dead = (tasks.c.project_id == project_id, tasks.c.outcome == TaskState.DEAD, tasks.c.undelivered > 0)
    return connection.execute(sa.select(tasks.c.id).where(*dead).limit(1)).first() is not None


def has_failure(connection: Connection, project_id: int) -> bool:
    bad = sa.select(tasks.c.id).where(tasks.c.project_id == project_id, tasks.c.outcome.in_(("failed", "dead")))
    return connection.execute(bad.limit(1)).first() is not None


def drained(connection: Connection, limit: int) -> list[Project]:
    """Closed projects without a lease: candidates, to be looked at again under the exclusive lock."""
    alive = sa.exists().where(leases.c.project_id == projects.c.id)
    query = sa.select(projects.c.id).where(projects.c.status == ProjectStatus.CLOSED, ~alive).limit(limit)
    ids = list(connection.execute(query).scalars())
    return _select(connection, projects.c.id.in_(ids)) if ids else []
