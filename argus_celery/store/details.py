"""All that the store knows of one task. Nothing here locks or writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.records import QUEUE, AttemptInfo, Message, StepInfo, TaskInfo
from argus_celery.store import steps
from argus_celery.store.engine import Store
from argus_celery.store.envelope import unseal
from argus_celery.store.holders import nodes
from argus_celery.store.limits import BY_LIMIT, BY_PAUSE
from argus_celery.store.names import is_possible
from argus_celery.store.reports import ATTEMPT, attempt_of, read_tasks, task_query
from argus_celery.store.schema import attempts, edges, leases, tasks


@dataclass(frozen=True, slots=True)
class LeaseInfo:
    """Why a task that has not ended runs, or does not yet."""

    eligible_at: int
    """When it is due; of one that is queued or runs, when that lapses."""
    expires_at: int | None
    started_at: int | None
    dispatches: int
    waits: int
    paused: bool
    """Parked with its project."""
    limited: bool
    """It waits in the line of a limit."""
    progress_until: int | None = None
    """Until when its run has to show progress, if it has to."""


@dataclass(frozen=True, slots=True)
class TaskDetails:
    info: TaskInfo
    now: int
    """The store's clock when it was asked."""
    lease: LeaseInfo | None
    """None of a task that has ended."""
    attempts: tuple[AttemptInfo, ...]
    """The last runs that have ended, in order."""
    nodes: Mapping[str, str]
    """Names of the workers that hold or held it, as far as they are known."""
    message: Message | None
    """None where only the result of a task is kept that was never recorded."""
    parent_id: str | None
    root_id: str | None
    group_id: str | None
    max_losses: int
    parents: tuple[TaskInfo, ...] = ()
    """The tasks that it comes after, in the order in which they were given."""
    step_count: int = 0
    steps: tuple[StepInfo, ...] = ()
    """The last that it has finished, in order."""


def task_details(store: Store, task_id: str, most: int = 100) -> TaskDetails | None:
    """With so many attempts and steps at most. None if there is no task of this id."""
    if not is_possible(task_id):
        return None
    return store.read(lambda connection: _details(store, connection, task_id, most))


def _details(store: Store, connection: Connection, task_id: str, most: int) -> TaskDetails | None:
    found = read_tasks(connection, task_query().where(tasks.c.id == task_id))
    c = tasks.c
    columns = (c.message, c.body, c.parent_id, c.root_id, c.group_id, c.max_losses, store.now.label("now"))
    row = connection.execute(sa.select(*columns).where(c.id == task_id)).first()
    if not found or row is None:
        return None
    lease = connection.execute(sa.select(leases).where(leases.c.task_id == task_id)).first()
    last = (
        sa.select(*ATTEMPT, attempts.c.node)
        .where(attempts.c.task_id == task_id)
        .order_by(attempts.c.token.desc())
        .limit(most)
    )
    rows = connection.execute(last).all()[::-1]
    info = found[0]
    after = sa.select(edges.c.parent_id).where(edges.c.child_id == task_id)
    parents = {one.id: one for one in read_tasks(connection, task_query().where(tasks.c.id.in_(after)))}
    in_order = connection.execute(after.order_by(edges.c.position)).scalars()
    step_count, last_steps = steps.finished(connection, task_id, most)
    held_now = {info.holder} - {"", QUEUE}
    return TaskDetails(
        info=info,
        now=int(row.now),
        lease=_lease(lease) if lease is not None else None,
        attempts=tuple(attempt_of(row) for row in rows),
        nodes={row.holder: row.node for row in rows if row.node} | nodes(connection, held_now),
        message=unseal(row.message, row.body) if info.queue else None,
        parent_id=row.parent_id,
        root_id=row.root_id,
        group_id=row.group_id,
        max_losses=row.max_losses,
        parents=tuple(parents[id_] for id_ in in_order if id_ in parents),
        step_count=step_count,
        steps=tuple(last_steps),
    )


def _lease(row: Any) -> LeaseInfo:
    return LeaseInfo(
        row.eligible_at,
        row.expires_at,
        row.started_at,
        row.dispatches,
        row.waits,
        row.paused == BY_PAUSE,
        row.paused == BY_LIMIT,
        row.progress_until,
    )
