"""What a scheduler looks at first: what is due in each queue, how much the broker holds, what else is owed."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.records import NOBODY, QUEUE, ProjectStatus
from argus_celery.store.alarms import is_overdue
from argus_celery.store.engine import Store
from argus_celery.store.schema import alarms, chords, leases, limits, projects, queues, tasks, waiting_for_nothing

c = leases.c


@dataclass(frozen=True, slots=True)
class Level:
    """One (queue, priority) in which rows wait in the store, and when the first is due."""

    queue: str
    priority: int
    first: int
    projects: tuple[int, int] = (0, 0)
    """The lowest and the highest id of the projects that wait in it."""

    @property
    def is_shared(self) -> bool:
        return self.projects[0] != self.projects[1]


@dataclass(frozen=True, slots=True)
class Heads:
    """The first due instant of everything that could be dispatched."""

    now: int
    held: int | None
    """Of rows held by the queue or a worker."""
    limit: int | None
    """When a limit is to be looked at, in whose line somebody waits."""
    levels: tuple[Level, ...]
    closed: bool = False
    """Is there a closed project, that may have drained?"""
    owed: bool = False
    """Is there an outcome that a result backend or what follows is still owed, or a chord owed its body?"""
    alarmed: bool = False
    """Is there a project that something is to be done to: one whose deadline is over, or a task of which failed?"""

    def due_levels(self) -> list[Level]:
        due = [level for level in self.levels if level.first <= self.now]
        return sorted(due, key=lambda level: (-level.priority, level.first))

    @property
    def any_due(self) -> bool:
        return self.row_due or self.limit_due

    @property
    def row_due(self) -> bool:
        return bool(self.due_levels()) or (self.held is not None and self.held <= self.now)

    @property
    def limit_due(self) -> bool:
        return self.limit is not None and self.limit <= self.now

    @property
    def next_due_ms(self) -> int | None:
        """Milliseconds until the next scheduled row is due; None where none is."""
        firsts = [level.first for level in self.levels] + ([] if self.limit is None else [self.limit])
        future = [first - self.now for first in firsts if first > self.now]
        return min(future) if future else None


def heads(store: Store, connection: Connection) -> Heads:
    """One statement whose cost follows the number of queues and priorities, not of rows: one index entry each."""
    level = queues.c
    first = (
        sa.select(c.eligible_at)
        .where(c.holder == NOBODY, c.paused == 0, c.waits == 0, c.queue == level.queue, c.priority == level.priority)
        .order_by(c.eligible_at)
        .limit(1)
        .scalar_subquery()
    )
    held = sa.select(sa.func.min(c.eligible_at)).where(c.holder > NOBODY, c.waits == 0).scalar_subquery()
    lowest, highest = (_project(order) for order in (c.project_id, c.project_id.desc()))
    columns = (level.queue, level.priority, first.label("first"), sa.literal(0).label("held"))
    query = sa.select(*columns, lowest.label("lowest"), highest.label("highest"))
    closed = sa.select(projects.c.id).where(projects.c.status == ProjectStatus.CLOSED).limit(1).scalar_subquery()
    owed, chord = _least(tasks.c.undelivered), _least(chords.c.owed)
    limit = sa.select(sa.func.min(limits.c.due_at)).scalar_subquery()
    alarm = sa.select(alarms.c.project_id).where(alarms.c.project_id > 0).limit(1).scalar_subquery()
    overdue = sa.select(projects.c.id).where(*is_overdue(store)).limit(1).scalar_subquery()
    none = (sa.literal(0), sa.literal(0))
    last = [
        sa.select(sa.literal("held"), sa.literal(0), held, store.now, *none),
        sa.select(sa.literal("limit"), sa.literal(0), limit, sa.literal(-1), *none),
        sa.select(sa.literal("closed"), sa.literal(0), closed, sa.literal(-1), *none),
        sa.select(sa.literal("alarmed"), sa.literal(0), sa.func.coalesce(alarm, overdue), sa.literal(-1), *none),
        sa.select(sa.literal("owed"), sa.literal(0), sa.func.coalesce(owed, chord), sa.literal(-1), *none),
    ]
    rows = connection.execute(query.union_all(*last)).all()
    rest = {row.queue: row for row in rows if row.held}
    return Heads(
        now=rest["held"].held,
        held=rest["held"].first,
        limit=rest["limit"].first,
        levels=tuple(
            Level(r.queue, r.priority, r.first, (r.lowest, r.highest))
            for r in rows
            if not r.held and r.first is not None
        ),
        closed=rest["closed"].first is not None,
        owed=rest["owed"].first is not None,
        alarmed=rest["alarmed"].first is not None,
    )


def _project(order: sa.ColumnElement[int]) -> sa.ScalarSelect[int]:
    """The first in this order of the projects that wait in a level."""
    here = (*waiting_for_nothing(), c.queue == queues.c.queue, c.priority == queues.c.priority)
    return sa.select(c.project_id).where(*here).order_by(order).limit(1).correlate(queues).scalar_subquery()


def in_broker(connection: Connection) -> dict[str, int]:
    """How many messages the broker may hold, by queue."""
    query = sa.select(c.queue, sa.func.count()).where(c.holder == QUEUE).group_by(c.queue)
    return {row[0]: row[1] for row in connection.execute(query)}


def _least(debt: sa.ColumnElement[int]) -> sa.ScalarSelect[int]:
    """The least above 0. Asked for in order, so that a partial index answers also where no statistics speak for it."""
    return sa.select(debt).where(debt > sa.literal_column("0")).order_by(debt).limit(1).scalar_subquery()
