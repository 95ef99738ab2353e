"""Share: where several projects wait in one queue and priority, each has its part of what goes out, by its weight.

So a project of ten does not wait for one of a million that came before it: at most for the messages that the broker
holds already. What a project leaves of its part goes to who has waited longest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from argus_celery.flow.runtime import Runtime
from argus_celery.store import leases, sharing
from argus_celery.store.backlog import Level
from argus_celery.store.leases import Lease

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

PROJECTS = 20
"""How many projects one look shares a queue between; the next begins with others."""


def due_waiting(rt: Runtime, connection: Connection, level: Level, room: int) -> list[Lease]:
    """Lock up to ``room`` due rows of the level that nobody holds."""
    if not level.is_shared:
        return leases.due_waiting(rt.store, connection, level, room)
    weights = sharing.projects_of(connection, level, min(PROJECTS, room))
    parts = [
        sharing.take(rt.store, connection, level, id_, part) for id_, part in parts_of(weights, room).items() if part
    ]
    taken = mixed(parts)[:room]
    if len(taken) < room:
        known = {row.task_id for row in taken}
        oldest = leases.due_waiting(rt.store, connection, level, room)
        taken += [row for row in oldest if row.task_id not in known][: room - len(taken)]
    return taken


def parts_of(weights: Mapping[int, int], room: int) -> dict[int, int]:
    """How many of ``room`` each may send: by weight, and at least one."""
    total = sum(weights.values())
    return {id_: max(1, room * weight // total) for id_, weight in weights.items()}


def mixed(parts: Sequence[Sequence[Lease]]) -> list[Lease]:
    """Each evenly spread over the whole, so that the broker's queue is as fair as what went into it."""
    placed = [((at + 0.5) / len(part), number, row) for number, part in enumerate(parts) for at, row in enumerate(part)]
    return [row for _, _, row in sorted(placed, key=lambda one: one[:2])]
