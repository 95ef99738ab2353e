"""Messages that are lost, copied, or come back from long ago."""

from __future__ import annotations

from typing import Any

from argus_celery.flow.outage import wait_out
from tests.chaos.fault import Hit, OnBroker
from tests.chaos.world import World

COPIED = 50
"""Messages that are copied at once, at most."""
KEPT = 500
"""Old messages that are kept to be replayed, at most."""


class Flush(OnBroker):
    """All that waits in the queue is gone."""

    name, weight = "flush broker", 3

    def begin(self, world: World) -> Hit:
        waiting = wait_out(lambda: world.broker.take(KEPT))
        world.broker.flush()
        return Hit(tasks=frozenset(id_of(message) for message in waiting))


class Copy(OnBroker):
    """What waits comes two to four times."""

    name, weight = "copy messages", 2

    def begin(self, world: World) -> Hit:
        waiting = wait_out(lambda: world.broker.take(COPIED))
        world.broker.put(waiting * (1 + self.choice % 3))
        world.kept = [*world.kept, *waiting][-KEPT:]
        return Hit()


class Replay(OnBroker):
    """What was copied before comes once more, whatever has become of it."""

    name, weight = "replay messages", 2

    def begin(self, world: World) -> Hit:
        chosen = self.random.sample(world.kept, min(COPIED, len(world.kept)))
        world.broker.put(chosen)
        return Hit()


def id_of(message: Any) -> str:
    """Of its task. A virtual transport's message is one document."""
    headers = message["headers"] if isinstance(message, dict) else message.headers
    return str(headers["id"])
