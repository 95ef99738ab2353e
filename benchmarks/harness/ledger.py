"""What the bodies of a run have written: who started and ended what, and when."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Line:
    event: str
    what: str
    worker: str
    at: float


class Ledger:
    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self, event: str | None = None) -> list[Line]:
        if not self.path.exists():
            return []
        fields = (line.split() for line in self.path.read_text().splitlines())
        lines = [Line(one, what, worker, float(at)) for one, what, worker, at in fields]
        return [line for line in lines if event in (None, line.event)]

    def ended(self) -> Counter[str]:
        """How often each task ran to its end."""
        return Counter(line.what for line in self.lines("end"))

    def in_hand(self, worker: str) -> set[str]:
        """What this worker has started and not ended."""
        mine = [line for line in self.lines() if line.worker == worker]
        started = Counter(line.what for line in mine if line.event == "start")
        started.subtract(line.what for line in mine if line.event == "end")
        return {what for what, left in started.items() if left > 0}

    def again(self, what: str, after: float) -> float | None:
        """When this task was started next after an instant."""
        return min((line.at for line in self.lines("start") if line.what == what and line.at > after), default=None)
