"""How long it took: seconds from a fault until the last task that it hit had begun again. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from tests.chaos.fault import Hit
from tests.chaos.judge import BEGUN
from tests.chaos.progress import DONE
from tests.faults.ledger import Line


def recovery(lines: Sequence[Line], began: float, healed: float, hit: Hit, *, outage: bool) -> float | None:
    """None if it hit nothing. An outage is over when anything begins after it, in the processes that it hit, if any."""
    if outage:
        there = [line for line in lines if not hit.pids or line.pid in hit.pids]
        begun = [line.clock for line in there if line.event in BEGUN and line.clock > healed]
        return min(begun) - healed if begun else None
    tasks = hit.tasks | interrupted(lines, began, hit.pids)
    again = [found for task in tasks if (found := next_start(lines, task, began)) is not None]
    return max(again) - began if again else None


def interrupted(lines: Iterable[Line], began: float, pids: Collection[int]) -> set[str]:
    """Tasks that these processes had begun and not done."""
    open_runs: dict[str, set[int]] = defaultdict(set)
    for line in lines:
        if line.pid in pids and line.clock < began:
            if line.event == "start":
                open_runs[line.task_id].add(line.token)
            elif line.event in DONE:
                open_runs[line.task_id].discard(line.token)
    return {task for task, tokens in open_runs.items() if tokens}


def next_start(lines: Iterable[Line], task: str, after: float) -> float | None:
    found = [line.clock for line in lines if line.task_id == task and line.event in BEGUN and line.clock > after]
    return min(found, default=None)


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that is not below this share of them."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
