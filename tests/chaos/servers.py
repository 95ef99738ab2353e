"""Broker and database that are killed, or that hang."""

from __future__ import annotations

import sqlite3

from sqlalchemy.engine import make_url

from tests.chaos.fault import Hit, OnBroker, OnStore
from tests.chaos.world import World
from tests.faults.matrix import NETWORKED, SERVERS


class RestartBroker(OnBroker):
    """Redis forgets everything by it."""

    name, weight, brokers = "restart broker", 2, NETWORKED
    lasts, outage = (0, 5), True

    def begin(self, world: World) -> Hit:
        world.broker.server.kill()
        return Hit()

    def heal(self, world: World) -> None:
        world.broker.server.start()


class FreezeBroker(OnBroker):
    name, weight, brokers = "freeze broker", 2, NETWORKED
    lasts, outage = (1, 6), True

    def begin(self, world: World) -> Hit:
        world.broker.server.pause()
        return Hit()

    def heal(self, world: World) -> None:
        world.broker.server.resume()


class RestartStore(OnStore):
    """Hard: its connections are gone, and what was not committed."""

    name, weight, stores = "restart store", 2, SERVERS
    lasts, outage = (0, 4), True

    def begin(self, world: World) -> Hit:
        world.place.server.kill()
        return Hit()

    def heal(self, world: World) -> None:
        world.place.server.start()


class FreezeStore(OnStore):
    name, weight, stores = "freeze store", 2, SERVERS
    lasts, outage = (1, 6), True

    def begin(self, world: World) -> Hit:
        world.place.server.pause()
        return Hit()

    def heal(self, world: World) -> None:
        world.place.server.resume()


class LockStore(OnStore):
    """Another program holds the only writer of SQLite."""

    name, weight, stores = "lock store", 2, ("sqlite",)
    lasts, outage = (0.5, 6), True

    def begin(self, world: World) -> Hit:
        path = make_url(world.place.url).database
        assert path is not None
        # Healed in another thread than this one.
        self.connection = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
        self.connection.execute("BEGIN IMMEDIATE")
        return Hit()

    def heal(self, world: World) -> None:
        self.connection.rollback()
        self.connection.close()
