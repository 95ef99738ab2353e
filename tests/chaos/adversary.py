"""The adversary: one fault after another, each when so much work has ended; and what broke by itself is noted."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import count

from tests.chaos.fault import Fault, Hit
from tests.chaos.faults import fault
from tests.chaos.world import World

PAUSE = 0.05


@dataclass
class Done:
    """A fault that was done, for the judge and the report."""

    number: int
    began: float
    """By the clock of this boot, like the ledger."""
    kind: type[Fault]
    hit: Hit
    healed: float = 0.0


@dataclass
class Adversary:
    world: World
    done: list[Done] = field(default_factory=list)
    died: list[str] = field(default_factory=list)
    """Processes that ended and that no fault had killed, with the end of their logs."""
    _under: list[tuple[float, Fault, Done]] = field(default_factory=list)
    """What is not healed yet, and when it will be."""

    def rage(self, until: float) -> None:
        """Until this moment of the monotonic clock; then all is healed."""
        options, world = self.world.options, self.world
        threshold = 0
        for number in count():
            threshold += options.gap(number)
            one = fault(options, number)
            while len(world.progress.done) < threshold or one.victims(world) & self._taken():
                if time.monotonic() > until:
                    return self.heal_all()
                self.look_after()
            self._begin(number, one)

    def look_after(self) -> None:
        """Heal what is due, start again what ended by itself, and see how far the work is."""
        now = time.monotonic()
        for entry in [entry for entry in self._under if entry[0] <= now]:
            self._heal(entry)
        taken = self._taken()
        for slot in self.world.slots:
            if slot.name not in taken and not slot.running and not slot.is_over:
                assert slot.node is not None
                self.died.append(f"{slot.name} exited {slot.node.process.returncode}:\n{slot.node.tail(3000)}")
                slot.start()
        self.world.progress.read_on()
        time.sleep(PAUSE)

    def heal_all(self) -> None:
        for entry in list(self._under):
            self._heal(entry)

    def _begin(self, number: int, one: Fault) -> None:
        began = time.monotonic()
        self.world.note_fault("begin", number, one.name, one.victims(self.world))
        done = Done(number, began, type(one), one.begin(self.world))
        self.done.append(done)
        self._under.append((began + one.seconds, one, done))

    def _heal(self, entry: tuple[float, Fault, Done]) -> None:
        _, one, done = entry
        one.heal(self.world)
        done.healed = time.monotonic()
        self.world.note_fault("healed", done.number, one.name, one.victims(self.world))
        self._under.remove(entry)

    def _taken(self) -> set[str]:
        return set().union(*(one.victims(self.world) for _, one, _ in self._under))
