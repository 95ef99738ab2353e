"""Who ran what and when: the attempts of a project, with those that run now."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.records import QUEUE, AttemptOutcome
from argus_celery.store.engine import Store
from argus_celery.store.names import is_possible
from argus_celery.store.schema import attempts, holders, leases, projects, tasks
from argus_celery.timeline import Earlier, Timeline, TimelineAttempt

DETAIL = 2_000
"""Characters of a detail: a traceback says the most at its end."""

_began = sa.func.coalesce(attempts.c.started_at, attempts.c.finished_at)
_long = sa.func.char_length(attempts.c.detail)


def timeline(store: Store, name: str, limit: int, before: Earlier | None = None) -> Timeline | None:
    """The newest attempts that have ended, or those before a page, and (on the first page) all that run now.

    None if there is no project of this name.
    """
    if not is_possible(name):
        return None
    return store.read(lambda connection: _read(store, connection, name, limit, before))


def _read(store: Store, connection: Connection, name: str, limit: int, before: Earlier | None) -> Timeline | None:
    project = connection.execute(
        sa.select(projects.c.id, store.now.label("now")).where(projects.c.name == name)
    ).first()
    if project is None:
        return None
    # First what runs: a run that ends between the two looks is seen twice, not never.
    running = _running(connection, project.id) if before is None else []
    ended = _ended(connection, project.id, limit + 1, before)
    page, more = ended[-limit:], len(ended) > limit
    known = {(one.task_id, one.token) for one in page}
    found = [*page, *(one for one in running if (one.task_id, one.token) not in known)]
    return Timeline(
        project=name,
        now=project.now,
        attempts=tuple(sorted(found, key=lambda one: (one.began_at, one.task_id, one.token))),
        earlier=(page[0].began_at, page[0].task_id, page[0].token) if more else None,
    )


def _running(connection: Connection, project_id: int) -> list[TimelineAttempt]:
    lease = leases.c
    columns = (tasks.c.name, tasks.c.key, lease.token, lease.holder, holders.c.node, lease.started_at)
    source = leases.join(tasks, tasks.c.id == lease.task_id).outerjoin(holders, holders.c.id == lease.holder)
    # The project is hidden from the planner: what runs is few, what waits in a project may be a million.
    held = (lease.holder > QUEUE, lease.project_id + 0 == project_id, lease.started_at.is_not(None))
    rows = connection.execute(sa.select(lease.task_id, *columns).select_from(source).where(*held))
    return [TimelineAttempt(**row._mapping) for row in rows]


def _ended(connection: Connection, project_id: int, limit: int, before: Earlier | None) -> list[TimelineAttempt]:
    """The narrow keys are sorted first, and only a page of them is read whole."""
    a = attempts.c
    keys = sa.select(a.task_id, a.token, _began.label("began")).select_from(
        tasks.join(attempts, a.task_id == tasks.c.id)
    )
    keys = keys.where(tasks.c.project_id == project_id)
    if before is not None:
        keys = keys.where(_comes_before(*before))
    page = keys.order_by(_began.desc(), a.task_id.desc(), a.token.desc()).limit(limit).subquery("page")
    source = (
        page.join(attempts, sa.and_(a.task_id == page.c.task_id, a.token == page.c.token))
        .join(tasks, tasks.c.id == page.c.task_id)
        .outerjoin(holders, holders.c.id == a.holder)
    )
    query = sa.select(*_columns()).select_from(source).order_by(page.c.began, page.c.task_id, page.c.token)
    return [_attempt(row) for row in connection.execute(query)]


def _comes_before(began: int, task_id: str, token: int) -> sa.ColumnElement[bool]:
    a = attempts.c
    same = sa.or_(a.task_id < task_id, sa.and_(a.task_id == task_id, a.token < token))
    return sa.or_(_began < began, sa.and_(_began == began, same))


def _columns() -> tuple[sa.ColumnElement[Any], ...]:
    a = attempts.c
    # An attempt that an older version noted has no name of its own.
    node = sa.func.coalesce(a.node, holders.c.node).label("node")
    cut = sa.case((_long > DETAIL, sa.func.substr(a.detail, _long - DETAIL + 1)), else_=a.detail).label("detail")
    run = (a.task_id, a.token, a.holder, a.started_at, a.finished_at, a.outcome, a.seen_at, a.died)
    return (*run, node, cut, tasks.c.name, tasks.c.key)


def _attempt(row: Any) -> TimelineAttempt:
    return TimelineAttempt(**{**row._mapping, "outcome": AttemptOutcome(row.outcome), "died": bool(row.died)})
