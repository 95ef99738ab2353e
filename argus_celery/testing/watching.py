"""The points that are reached, by whichever process, and the kill at one of them."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from argus_celery.flow.points import Kind
from argus_celery.testing.ledger import Effect

EFFECT = "effect"
"""The point just after a write to the ledger, before anything that follows it is recorded."""
POINTS = tuple(str(kind) for kind in Kind)

_one_at_a_time = threading.Lock()


@dataclass(frozen=True, slots=True)
class Point:
    """An instant just after something was committed."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True)
class Watcher:
    """Notes the points that are reached, by whichever process, and kills the one that reaches the chosen."""

    path: Path
    kinds: frozenset[str]
    at: int | None

    @property
    def calm(self) -> Watcher:
        """The same, and nobody is killed."""
        return Watcher(self.path, self.kinds, None)

    def __call__(self, kind: str, name: str) -> None:
        if str(kind) not in self.kinds:
            return
        line = json.dumps([str(kind), name]) + "\n"
        with _one_at_a_time:
            with self.path.open("ab", buffering=0) as file:
                file.write(line.encode())
            if self.at is not None and len(self.reached()) == self.at:
                os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(60)  # a signal to oneself may take a moment

    def effect(self, effect: Effect) -> None:
        self(EFFECT, " ".join(map(str, effect)))

    def reached(self) -> list[Point]:
        if not self.path.exists():
            return []
        return [Point(*json.loads(line)) for line in self.path.read_text().splitlines()]
