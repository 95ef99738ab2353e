"""A fault: how it is begun and healed, on whom, how long. It waits until the last one has let go of its victims."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import ClassVar

from tests.chaos.world import Slot, World

BROKER, STORE = "broker", "store"


@dataclass(frozen=True, slots=True)
class Hit:
    """What a fault has hit."""

    pids: frozenset[int] = frozenset()
    """Processes that it has killed, stopped or cut off."""
    tasks: frozenset[str] = frozenset()
    """Tasks whose messages it has lost."""


class Fault:
    name: ClassVar[str]
    weight: ClassVar[int] = 1
    brokers: ClassVar[tuple[str, ...]] = ()
    """Where it makes sense; everywhere if empty."""
    stores: ClassVar[tuple[str, ...]] = ()
    tool: ClassVar[str] = ""
    """What the machine must have for it."""
    stops: ClassVar[bool] = False
    """Its processes are stopped and go on."""
    outage: ClassVar[bool] = False
    """It kills nobody: all goes on once it is over."""
    lasts: ClassVar[tuple[float, float]] = (0, 0)
    """Seconds until it is healed, from and to."""

    def __init__(self, random: Random) -> None:
        self.choice = random.randrange(10**6)
        self.seconds = random.uniform(*self.lasts)
        self.random = random

    def victims(self, world: World) -> set[str]:
        """Names of slots, ``broker``, ``store``."""
        raise NotImplementedError

    def begin(self, world: World) -> Hit:
        raise NotImplementedError

    def heal(self, world: World) -> None:
        """Called once, when it has lasted."""


class OnWorker(Fault):
    """Its victim is one worker."""

    def worker(self, world: World) -> Slot:
        return world.workers[self.choice % len(world.workers)]

    def victims(self, world: World) -> set[str]:
        return {self.worker(world).name}


class OnBroker(Fault):
    """On an embedded broker it hits the store too, whose tables it is."""

    def victims(self, world: World) -> set[str]:
        return {BROKER, STORE} if world.options.broker == "argus" else {BROKER}


class OnStore(Fault):
    def victims(self, world: World) -> set[str]:
        return {BROKER, STORE} if world.options.broker == "argus" else {STORE}
