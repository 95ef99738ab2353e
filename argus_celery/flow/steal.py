"""Steal: a worker that has nothing to do has tasks sent again that were sent to its queues and did not begin.

Where it has room, nothing of its queues waits in the broker for long. So what was sent a while ago was fetched by
another worker, which is busy or dead, or the broker has lost it. The copy bears the same token: whichever begins first
has the task, and the other is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from argus_celery.flow.runtime import Runtime
from argus_celery.store import stealing
from argus_celery.store.stealing import Sent

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

LOOKED_AT = 1000


@dataclass(frozen=True)
class Room:
    """What a worker could do now, and does not."""

    slots: int
    queues: Collection[str]
    """From which it takes tasks."""
    knows: Callable[[str], bool]
    """Can it run a task of this name?"""


def steal(rt: Runtime, room: Room) -> int:
    """Make up to as many tasks due as there is room for; the next dispatch sends them. Returns how many.

    The patience, ``steal_after``, doubles with each time that a task was sent, as its dispatch TTL does.
    """

    def look(connection: Connection) -> list[Sent]:
        return stealing.sent(rt.store, connection, room.queues, LOOKED_AT)

    ripe = [row for row in rt.store.statement(look) if room.knows(row.name) and _has_lain(rt, row)]
    some = ripe[: room.slots]
    return rt.store.statement(lambda connection: stealing.lapse(rt.store, connection, some)) if some else 0


def _has_lain(rt: Runtime, row: Sent) -> bool:
    times: int = 2 ** min(max(row.dispatches - 1, 0), 30)
    ttl: int = min(rt.dispatch_ttl_ms * times, rt.dispatch_ttl_max_ms)
    patience = round(rt.settings.steal_after * 1000) * times
    return ttl - row.lapses_in >= patience
