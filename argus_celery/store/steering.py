"""The rows of a project that is paused, resumed or cancelled."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.records import NOBODY, QUEUE
from argus_celery.store.engine import Store
from argus_celery.store.leases import Lease, came_at, read, select_lease
from argus_celery.store.schema import leases

c = leases.c


def pause_project(store: Store, connection: Connection, project_id: int) -> None:
    """Park every row of the project; what the queue held is due again when the project goes on."""
    _pause(store, connection, c.project_id == project_id)


def resume_project(store: Store, connection: Connection, project_id: int) -> None:
    """Unpark every row. A row that a dispatch gave to the queue during the pause had its message refused: due now."""
    _resume(store, connection, c.project_id == project_id)


def wait_no_more(connection: Connection, project_id: int) -> None:
    """The project's rows wait for no other task."""
    connection.execute(sa.update(leases).where(c.project_id == project_id, c.waits > 0).values(waits=0))


def repark(store: Store, connection: Connection, project_id: int, *, paused: bool, limit: int) -> int:
    """Park or unpark up to ``limit`` rows of the project that a pause or resume has missed; returns how many."""
    wrong = sa.select(c.task_id).where(c.project_id == project_id, c.paused == int(not paused)).limit(limit)
    ids = list(connection.execute(wrong).scalars())
    if ids:
        change = _pause if paused else _resume
        change(store, connection, c.task_id.in_(ids))
    return len(ids)


def _pause(store: Store, connection: Connection, which: sa.ColumnElement[bool]) -> None:
    connection.execute(
        sa.update(leases)
        .where(which, c.holder == QUEUE)
        .values(paused=1, holder=NOBODY, eligible_at=came_at(), dispatches=0)
    )
    connection.execute(sa.update(leases).where(which, c.paused == 0).values(paused=1))


def _resume(store: Store, connection: Connection, which: sa.ColumnElement[bool]) -> None:
    queued = (which, c.holder == QUEUE, c.paused == 1)
    connection.execute(sa.update(leases).where(*queued).values(eligible_at=store.now))
    # Those in the line of a limit keep their place, and are written all the same: whoever takes one out of it for the
    # pause has locked it, and is waited for, or passes it over and looks again.
    unparked = sa.case((c.paused == 1, 0), else_=c.paused)
    connection.execute(sa.update(leases).where(which, c.paused > 0).values(paused=unparked))


def lock_rows(
    store: Store, connection: Connection, project_id: int, limit: int, *, running_too: bool = False
) -> list[Lease]:
    """Lock rows of the project: those that no worker holds, or all."""
    which = sa.true() if running_too else c.holder.in_((NOBODY, QUEUE))
    query = select_lease(store).where(c.project_id == project_id, which)
    return read(connection, store.dialect.for_update(query.order_by(c.task_id).limit(limit)))


def lock_running(store: Store, connection: Connection, project_id: int) -> list[Lease]:
    """Lock the rows of the project that workers hold: as many as their pools have places."""
    query = select_lease(store).where(c.project_id == project_id, c.holder > QUEUE)
    return read(connection, store.dialect.for_update(query.order_by(c.task_id)))


def running_of(connection: Connection, project_id: int) -> list[tuple[str, int, str]]:
    """(task, token, holder) of the project's running tasks."""
    query = sa.select(c.task_id, c.token, c.holder).where(c.project_id == project_id, c.holder > QUEUE)
    return [tuple(row) for row in connection.execute(query)]
