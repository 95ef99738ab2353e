"""Which projects have rows in a level's backlog, each found by one index entry, however many rows it has."""

from __future__ import annotations

import random

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.store.backlog import Level
from argus_celery.store.engine import Store
from argus_celery.store.leases import Lease, lock_due_of_project
from argus_celery.store.schema import leases, projects, waiting_for_nothing

c = leases.c


def projects_of(connection: Connection, level: Level, most: int) -> dict[int, int]:
    """Up to ``most`` projects with their weights; where there are more, from a random one on, in a circle."""
    lowest, highest = level.projects
    begin = random.randint(lowest, highest) - 1
    found = _from(connection, level, begin, most)
    found += [id_ for id_ in _from(connection, level, lowest - 1, most - len(found)) if id_ <= begin]
    query = sa.select(projects.c.id, projects.c.weight).where(projects.c.id.in_(found))
    weights = {row.id: row.weight for row in connection.execute(query)}
    return {id_: weights.get(id_, 1) for id_ in dict.fromkeys(found)}


def _from(connection: Connection, level: Level, after: int, most: int) -> list[int]:
    here = (*waiting_for_nothing(), c.queue == level.queue, c.priority == level.priority)
    found: list[int] = []
    while len(found) < most:
        last = found[-1] if found else after
        query = sa.select(c.project_id).where(*here, c.project_id > last).order_by(c.project_id).limit(1)
        following = connection.execute(query).scalar()
        if following is None:
            break
        found.append(following)
    return found


def take(store: Store, connection: Connection, level: Level, project_id: int, count: int) -> list[Lease]:
    """Lock due rows of one project in a level that nobody holds, oldest first."""
    return lock_due_of_project(store, connection, level, project_id, count)
