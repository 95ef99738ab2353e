"""How long it took: seconds from a fault until the last task that it hit had begun again. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence

from tests.chaos.fault import Hit
from tests.chaos.judge import BEGUN
from tests.chaos.progress import DONE
from tests.faults.ledger import Line


class Recoveries:
    """The ledger of a run, as its faults look things up in it."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._of_pid: dict[int, list[Line]] = defaultdict(list)
        self._begun: list[float] = []
        self._begun_of_task: dict[str, list[float]] = defaultdict(list)
        for line in sorted(lines, key=lambda line: line.clock):
            self._of_pid[line.pid].append(line)
            if line.event in BEGUN:
                self._begun.append(line.clock)
                self._begun_of_task[line.task_id].append(line.clock)

    def of(self, began: float, healed: float, hit: Hit, *, outage: bool) -> float | None:
        """None if it hit nothing. An outage is over when anything begins after it, in the processes it hit, if any."""
        if outage:
            begun = self._begun if not hit.pids else self._begun_in(hit)
            first = _next(begun, healed)
            return first - healed if first is not None else None
        tasks = hit.tasks | self._interrupted(began, hit)
        again = [found for task in tasks if (found := _next(self._begun_of_task[task], began)) is not None]
        return max(again) - began if again else None

    def _begun_in(self, hit: Hit) -> list[float]:
        return sorted(line.clock for pid in hit.pids for line in self._of_pid[pid] if line.event in BEGUN)

    def _interrupted(self, began: float, hit: Hit) -> set[str]:
        """Tasks that the processes it hit had begun and not done."""
        open_runs: set[tuple[str, int]] = set()
        for pid in hit.pids:
            for line in self._of_pid[pid]:
                if line.clock < began and line.event == "start":
                    open_runs.add((line.task_id, line.token))
                elif line.clock < began and line.event in DONE:
                    open_runs.discard((line.task_id, line.token))
        return {task for task, _ in open_runs}


def _next(clocks: Sequence[float], after: float) -> float | None:
    at = bisect_right(clocks, after)
    return clocks[at] if at < len(clocks) else None


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that is not below this share of them."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
