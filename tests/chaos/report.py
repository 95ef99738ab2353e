"""What came of one run or more, as a table. A journal of them keeps one line of JSON for each."""

from __future__ import annotations

import datetime
import json
import os
import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.chaos.recovery import quantile

KINDS = ("lost", "doubled", "fallen", "fenced in vain", "early", "wrong", "workers")


@dataclass(frozen=True)
class Result:
    broker: str
    store: str
    seed: int
    command: str
    tasks: int
    """That were expected, and that beat has sent."""
    runs: int
    refused: int
    """Deliveries that no worker ran, being stale or copies."""
    faults: Mapping[str, int]
    recoveries: Mapping[str, Sequence[float]]
    violations: Mapping[str, int]
    commit: str

    @property
    def ok(self) -> bool:
        return not any(self.violations.values())


def read(journal: Path) -> list[Result]:
    return [Result(**json.loads(line)) for line in journal.read_text().splitlines()] if journal.exists() else []


def note(journal: Path, result: Result) -> None:
    with journal.open("a") as file:
        file.write(json.dumps(asdict(result)) + "\n")


def table(results: Sequence[Result]) -> str:
    return "\n".join([*_head(results), "", *_runs(results), "", *_faults(results)])


def _head(results: Sequence[Result]) -> list[str]:
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    tasks, faults = sum(one.tasks for one in results), sum(sum(one.faults.values()) for one in results)
    failed = [one for one in results if not one.ok]
    commits = ", ".join(sorted({one.commit for one in results}))
    return [
        f"Chaos: {tasks:,} tasks and {faults:,} faults in {len(results)} runs, {len(failed)} of which failed",
        f"{date}, {machine}, commit {commits}",
        "lost: accepted, and not ended or not done; doubled: more than one task or end; broken: what else is wrong;",
        "refused: stale and copied deliveries; p50, p99: seconds from a fault until what it hit ran again",
        *(f"failed: {_broken(one)}: ./dev chaos {one.command}" for one in failed),
    ]


def _runs(results: Sequence[Result]) -> list[str]:
    head = f"{'broker-store':<18}{'seed':>10}{'tasks':>8}{'runs':>8}{'faults':>8}{'lost':>6}{'doubled':>9}{'broken':>8}"
    lines = [f"{head}{'refused':>9}{'p50':>7}{'p99':>7}"]
    for one in results:
        counts = f"{one.tasks:>8}{one.runs:>8}{sum(one.faults.values()):>8}"
        rest = sum(one.violations.values()) - one.violations.get("lost", 0) - one.violations.get("doubled", 0)
        bad = f"{one.violations.get('lost', 0):>6}{one.violations.get('doubled', 0):>9}{rest:>8}"
        times = [seconds for found in one.recoveries.values() for seconds in found]
        lines.append(f"{_place(one):<18}{one.seed:>10}{counts}{bad}{one.refused:>9}{_times(times)}")
    return lines


def _faults(results: Sequence[Result]) -> list[str]:
    counted: Counter[str] = Counter()
    times: dict[str, list[float]] = {}
    for one in results:
        counted.update(one.faults)
        for name, found in one.recoveries.items():
            times.setdefault(name, []).extend(found)
    lines = [f"{'fault':<20}{'times':>7}{'p50':>7}{'p99':>7}"]
    return [*lines, *(f"{name:<20}{counted[name]:>7}{_times(times.get(name, []))}" for name in sorted(counted))]


def _times(values: Sequence[float]) -> str:
    return f"{quantile(values, 0.5):>7.1f}{quantile(values, 0.99):>7.1f}" if values else f"{'-':>7}{'-':>7}"


def _place(one: Result) -> str:
    return f"{one.broker}-{one.store}"


def _broken(one: Result) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in one.violations.items() if count)


def counted(kinds: Iterable[str]) -> dict[str, int]:
    found = Counter(kinds)
    return {kind: found[kind] for kind in KINDS}
