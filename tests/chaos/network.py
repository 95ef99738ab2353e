"""The way of one process to one server is cut, refused or stalled, by its own proxy."""

from __future__ import annotations

from typing import ClassVar

from tests.chaos.fault import BROKER, STORE, Fault, Hit
from tests.chaos.proxy import Proxy
from tests.chaos.world import Slot, World
from tests.faults.matrix import NETWORKED, SERVERS
from tests.faults.setup import LEASE_TTL


class OnWay(Fault):
    weight, outage = 2, True
    to: ClassVar[str]

    def slot(self, world: World) -> Slot:
        return world.slots[self.choice % len(world.slots)]

    def way(self, world: World) -> Proxy:
        return self.slot(world).ways[self.to]

    def victims(self, world: World) -> set[str]:
        return {self.slot(world).name}

    def heal(self, world: World) -> None:
        self.way(world).mend()


class Cut(OnWay):
    """All connections are reset, and new ones refused for a while."""

    lasts = (0, 1.5 * LEASE_TTL)

    def begin(self, world: World) -> Hit:
        self.way(world).cut(refuse=True)
        return Hit(frozenset(self.slot(world).pids))


class Stall(OnWay):
    """Connections stay, and carry nothing for a while."""

    lasts = (1, 2 * LEASE_TTL)

    def begin(self, world: World) -> Hit:
        self.way(world).stall()
        return Hit(frozenset(self.slot(world).pids))


class CutBroker(Cut):
    name, to, brokers = "cut from broker", BROKER, NETWORKED


class StallBroker(Stall):
    name, to, brokers = "stall to broker", BROKER, NETWORKED


class CutStore(Cut):
    name, to, stores = "cut from store", STORE, SERVERS


class StallStore(Stall):
    name, to, stores = "stall to store", STORE, SERVERS
