"""What one run is made of. The seed decides what the command line leaves open."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from random import Random

from tests.faults.matrix import ACKS

POOLS = ("prefork", "prefork", "threads")


@dataclass(frozen=True, slots=True)
class Options:
    broker: str = "argus"
    store: str = "sqlite"
    workers: int = 4
    minutes: float = 1.0
    """How long work is sent; what is under way then is waited for."""
    seed: int = 1
    backlog: int = 150
    """Tasks that are sent and have not ended, at most."""
    every: int = 70
    """Tasks that end between one fault and the next, on average."""
    faults: tuple[str, ...] = ()
    """Only these kinds of faults; all if empty."""

    @property
    def place(self) -> str:
        return f"{self.broker}-{self.store}"

    @property
    def command(self) -> str:
        """The arguments that repeat this run."""
        place = f"--broker {self.broker} --store {self.store} --workers {self.workers} --minutes {self.minutes:g}"
        only = f" --faults {shlex.join(self.faults)}" if self.faults else ""
        return f"--seed {self.seed} {place} --backlog {self.backlog} --every {self.every}{only}"

    @property
    def ack(self) -> str:
        return Random(f"{self.seed}/ack").choice(ACKS)

    def gap(self, number: int) -> int:
        """Tasks that end between the fault before this number and this one."""
        return Random(f"{self.seed}/gap/{number}").randint(self.every // 3, 2 * self.every - self.every // 3)

    def pool(self, number: int) -> str:
        """Of the worker of this number. The first has processes, whose children can be killed."""
        return POOLS[0] if number == 1 else Random(f"{self.seed}/pool/{number}").choice(POOLS)
