"""Rows of projects: found by name, steered under an exclusive lock."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.records import Bound, OnFailure, ProjectStatus
from argus_celery.store import limits
from argus_celery.store.alarms import is_overdue
from argus_celery.store.engine import Store
from argus_celery.store.hot import Hot, filled, listed, size
from argus_celery.store.schema import chords, leases, projects, tasks
from argus_celery.store.tasks import owing_more


@dataclass(frozen=True, slots=True)
class Project:
    id: int
    name: str
    status: ProjectStatus
    paused: bool
    on_failure: OnFailure = OnFailure.CONTINUE
    priority: int = 0
    limited: bool = False
    """Its tasks are under the limit of its own name."""

    @property
    def limit(self) -> str:
        return f"project {self.name}"


@dataclass(frozen=True, slots=True)
class Options:
    """What a project was given, as it stands."""

    on_failure: OnFailure
    priority: int
    weight: int
    deadline_at: int | None
    meta: Mapping[str, Any]
    created_at: int
    limit: Bound | None = None


def find(connection: Connection, name: str) -> Project | None:
    return _one(connection, projects.c.name == name)


def by_id(connection: Connection, project_id: int) -> Project | None:
    return _one(connection, projects.c.id == project_id)


def _one(connection: Connection, condition: sa.ColumnElement[bool]) -> Project | None:
    found = _select(connection, condition)
    return found[0] if found else None


def _select(connection: Connection, condition: sa.ColumnElement[bool]) -> list[Project]:
    return [_project(found) for found in connection.execute(_chosen(condition))]


def _chosen(condition: sa.ColumnElement[bool]) -> sa.Select[Any]:
    c = projects.c
    return sa.select(c.id, c.name, c.status, c.paused_at, c.policy, c.priority, c.limited).where(condition)


def _project(found: Sequence[Any]) -> Project:
    id_, name, status, paused_at, policy, priority, limited = found
    return Project(
        id=id_,
        name=name,
        status=ProjectStatus(status),
        paused=paused_at is not None,
        on_failure=on_failure(policy),
        priority=priority,
        limited=bool(limited),
    )


def on_failure(policy: str | None) -> OnFailure:
    return OnFailure(policy or OnFailure.CONTINUE)


def meta_of(kept: str | None) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(kept) if kept else {}
    return found


def shared(store: Store, connection: Connection, ids: Collection[int]) -> dict[int, Project]:
    """Lock these projects against steering until the commit, and read them."""
    for project_id in sorted(ids):
        hold(store, connection, project_id)
    return store.latest(connection, lambda latest: _read(store, latest, ids))


def _read(store: Store, connection: Connection, ids: Collection[int]) -> dict[int, Project]:
    if not ids:
        return {}
    found = _of_ids.rows(store, connection, filled("id", ids), size(len(ids)))
    return {project.id: project for project in map(_project, found)}


@Hot
def _of_ids(store: Store, many: int) -> sa.Select[Any]:
    return _chosen(projects.c.id.in_(listed("id", many, sa.BigInteger)))


def hold(store: Store, connection: Connection, project_id: int) -> None:
    """Lock a project against steering until the commit."""
    if store.dialect.locks_projects:
        _shared.rows(store, connection, {"project": project_id})


@Hot
def _shared(store: Store) -> Any:
    return store.dialect.project_lock(exclusive=False)


def read(connection: Connection, ids: Collection[int]) -> dict[int, Project]:
    """These projects as committed."""
    return {project.id: project for project in _select(connection, projects.c.id.in_(ids))} if ids else {}


def exclusive(store: Store, connection: Connection, project_id: int) -> Project | None:
    """Lock a project for steering, and read it."""
    if store.dialect.locks_projects:
        connection.execute(store.dialect.project_lock(exclusive=True), {"project": project_id})
    return by_id(connection, project_id)


def insert(store: Store, connection: Connection, name: str, given: Mapping[str, Any]) -> None:
    """Insert an open project with these options; ``DuplicateRow`` if the name is taken."""
    values = {"name": name, "status": ProjectStatus.OPEN, "created_at": store.now, **_columns(store, given)}
    if given.get("limit") is not None:
        limits.define(store, connection, [given["limit"]])
        values["limited"] = 1
    connection.execute(sa.insert(projects).values(values))


def configure(store: Store, connection: Connection, project: Project, given: Mapping[str, Any]) -> None:
    """The project is locked for steering."""
    values = _columns(store, given)
    if "limit" in given and (project.limited or given["limit"] is not None):
        limits.define(store, connection, [given["limit"] or Bound(project.limit)])
        values["limited"] = 1
        if not project.limited:
            limits.enter_all_of(store, connection, project.id, project.limit)
    if values:
        _update(connection, project.id, **values)


def _columns(store: Store, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options by column; ``deadline_in`` is milliseconds from the database's now."""
    values = {option: value for option, value in given.items() if option != "limit"}
    if "on_failure" in values:
        chosen = values.pop("on_failure")
        values["policy"] = None if chosen is OnFailure.CONTINUE else chosen
    if "deadline_in" in values:
        values["deadline_at"] = store.now + values.pop("deadline_in")
    if "meta" in values:
        values["meta"] = json.dumps(values["meta"]) if values["meta"] else None
    return values


def options(connection: Connection, name: str) -> Options | None:
    """None if there is no project of this name."""
    c = projects.c
    columns = (c.policy, c.priority, c.weight, c.deadline_at, c.meta, c.created_at)
    r = connection.execute(sa.select(*columns).where(c.name == name)).first()
    if r is None:
        return None
    limit = limits.standing(connection, f"project {name}")
    return Options(on_failure(r.policy), r.priority, r.weight, r.deadline_at, meta_of(r.meta), r.created_at, limit)


def close(store: Store, connection: Connection, project_id: int) -> None:
    _update(connection, project_id, status=ProjectStatus.CLOSED, closed_at=store.now)


def finish(
    store: Store, connection: Connection, project_id: int, status: ProjectStatus, reason: str | None = None
) -> None:
    _update(connection, project_id, status=status, finished_at=store.now, reason=reason)


def go_on(connection: Connection, project_id: int) -> None:
    """What had ended has work again, and takes no more from outside."""
    _update(connection, project_id, status=ProjectStatus.CLOSED, finished_at=None)


def reopen(store: Store, connection: Connection, project_id: int) -> None:
    """It takes tasks from outside again. A deadline that is over is dropped, and so is the reason of a cancel."""
    over = projects.c.deadline_at <= store.now
    deadline = sa.case((over, None), else_=projects.c.deadline_at)
    values = {"closed_at": None, "finished_at": None, "deadline_at": deadline, "reason": None}
    _update(connection, project_id, status=ProjectStatus.OPEN, **values)


def pause(store: Store, connection: Connection, project_id: int, reason: str | None = None) -> None:
    _update(connection, project_id, paused_at=store.now, reason=reason)


def resume(connection: Connection, project_id: int) -> None:
    """The reason stays with what has ended."""
    live = projects.c.status.in_((ProjectStatus.OPEN, ProjectStatus.CLOSED))
    _update(connection, project_id, paused_at=None, reason=sa.case((live, None), else_=projects.c.reason))


def overdue(store: Store, connection: Connection, limit: int) -> list[str]:
    """Names of live projects whose deadline is over."""
    query = sa.select(projects.c.name).where(*is_overdue(store)).order_by(projects.c.deadline_at).limit(limit)
    return list(connection.execute(query).scalars())


def is_over(store: Store, connection: Connection, instant: int) -> bool:
    """By the database's clock."""
    return bool(connection.execute(sa.select(store.now >= instant)).scalar())


def overdue_since(store: Store, connection: Connection, project_id: int) -> int | None:
    query = sa.select(projects.c.deadline_at).where(projects.c.id == project_id, *is_overdue(store))
    found: int | None = connection.execute(query).scalar()
    return found


def _update(connection: Connection, project_id: int, **values: object) -> None:
    connection.execute(sa.update(projects).where(projects.c.id == project_id).values(**values))


def has_lease(connection: Connection, project_id: int) -> bool:
    """Is any task of the project still alive?"""
    query = sa.select(leases.c.task_id).where(leases.c.project_id == project_id).limit(1)
    return connection.execute(query).first() is not None


def owes_more(connection: Connection, project_id: int) -> bool:
    """Is something yet to be recorded that belongs to the project: an errback, a chord's body?"""
    debt = sa.select(tasks.c.id).where(tasks.c.project_id == project_id, owing_more()).limit(1)
    chord = sa.select(chords.c.id).where(chords.c.project_id == project_id, chords.c.owed > 0).limit(1)
    return any(connection.execute(query).first() is not None for query in (debt, chord))


def has_failure(connection: Connection, project_id: int) -> bool:
    bad = sa.select(tasks.c.id).where(tasks.c.project_id == project_id, tasks.c.outcome.in_(("failed", "dead")))
    return connection.execute(bad.limit(1)).first() is not None


def misparked(connection: Connection, limit: int) -> list[int]:
    """Projects with a row that is parked though nothing will resume it, or is not though the project is paused.

    One or two index entries for each project that is alive or was cancelled, however many rows it has.
    """
    c = projects.c
    goes_on = sa.or_(c.paused_at.is_(None), c.status == ProjectStatus.CANCELLED)
    query = sa.select(c.id).where(
        c.status.in_((ProjectStatus.OPEN, ProjectStatus.CLOSED, ProjectStatus.CANCELLED)),
        sa.or_(sa.and_(goes_on, _has_row(paused=1)), sa.and_(~goes_on, _has_row(paused=0))),
    )
    return list(connection.execute(query.limit(limit)).scalars())


def _has_row(*, paused: int) -> sa.ColumnElement[bool]:
    # A scalar with a limit, not EXISTS: for that a planner may choose to read all leases once.
    row = sa.select(sa.literal(1)).where(leases.c.project_id == projects.c.id, leases.c.paused == paused)
    return row.limit(1).scalar_subquery() == 1


def drained(connection: Connection, limit: int) -> list[Project]:
    """Closed projects without a lease: candidates, to be looked at again under the exclusive lock."""
    alive = sa.exists().where(leases.c.project_id == projects.c.id)
    query = sa.select(projects.c.id).where(projects.c.status == ProjectStatus.CLOSED, ~alive).limit(limit)
    ids = list(connection.execute(query).scalars())
    return _select(connection, projects.c.id.in_(ids)) if ids else []
