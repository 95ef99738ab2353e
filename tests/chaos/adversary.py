"""The adversary: one fault after another, each when so much work has ended; and what broke by itself is noted.

Faults begin and heal in threads of their own: one may have to wait for what another holds.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count

from tests.chaos.fault import Fault, Hit
from tests.chaos.faults import fault
from tests.chaos.world import World

PAUSE = 0.05
AT_ONCE = 32
"""Faults that are under way, at most."""


@dataclass
class Done:
    """A fault that was done, for the judge and the report."""

    number: int
    kind: type[Fault]
    began: float
    """By the clock of this boot, like the ledger."""
    hit: Hit = field(default_factory=Hit)
    healed: float = 0.0


@dataclass
class UnderWay:
    fault: Fault
    done: Done
    beginning: Future[Hit]
    healing: Future[None] | None = None


@dataclass
class Adversary:
    world: World
    done: list[Done] = field(default_factory=list)
    died: list[str] = field(default_factory=list)
    """Processes that ended and that no fault had killed, with the end of their logs."""
    _under_way: list[UnderWay] = field(default_factory=list)
    _hands: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(AT_ONCE))

    def rage(self, until: float) -> None:
        """Until this moment of the monotonic clock; then all is healed."""
        options, world = self.world.options, self.world
        threshold = 0
        for number in count():
            threshold += options.gap(number)
            one = fault(options, number)
            while len(world.progress.done) < threshold or one.victims(world) & self._taken():
                if time.monotonic() > until:
                    return self._heal_all()
                self.look_after()
            self._begin(number, one)

    def look_after(self) -> None:
        """Heal what is due, start again what ended by itself, and see how far the work is."""
        for one in list(self._under_way):
            self._go_on(one, time.monotonic())
        taken = self._taken()
        for slot in self.world.slots:
            if slot.name not in taken and not slot.running and not slot.is_over:
                assert slot.node is not None
                self.died.append(f"{slot.name} exited {slot.node.process.returncode}:\n{slot.node.tail(3000)}")
                slot.start()
        self.world.progress.read_on()
        time.sleep(PAUSE)

    def _begin(self, number: int, one: Fault) -> None:
        self.world.note_fault("begin", number, one.name, one.victims(self.world))
        done = Done(number, type(one), time.monotonic())
        self.done.append(done)
        self._under_way.append(UnderWay(one, done, self._hands.submit(one.begin, self.world)))

    def _go_on(self, one: UnderWay, now: float) -> None:
        if one.healing is not None and one.healing.done():
            one.healing.result()
            one.done.healed = now
            self._under_way.remove(one)
            self.world.note_fault("healed", one.done.number, one.fault.name, one.fault.victims(self.world))
        elif one.healing is None and one.beginning.done() and now >= one.done.began + one.fault.seconds:
            one.done.hit = one.beginning.result()
            one.healing = self._hands.submit(one.fault.heal, self.world)

    def _heal_all(self) -> None:
        """Each when it is due."""
        while self._under_way:
            self.look_after()

    def _taken(self) -> set[str]:
        return set().union(*(one.fault.victims(self.world) for one in self._under_way))
