"""``python -m tests.faults.guarantees`` writes docs/guarantees.md from the last result of the fault bench."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.matrix import case

HERE = Path(__file__).parent
RESULT = HERE / "last-result.txt"
PAGE = HERE.parents[1] / "docs" / "guarantees.md"

HOLDS = {
    "A process dies": {
        "1": "Its worker sees it at once: the task starts again under a higher token, and no errback is called.",
        "1-end": "It runs again, for nobody was told of its end. One outcome is recorded.",
        "2": "Its tasks run elsewhere once a worker boots, without beat. What had not begun is charged no attempt.",
        "3": "After `max_losses` a dead letter with the signal, its errback called once. Tasks behind it go unharmed.",
        "20": "Children are not enqueued twice; what is written through the fence is there once.",
        "14-killed": "The row is there, so the sweep publishes it: one run.",
        "22-kill": "The tick was recorded: one run.",
        "24-fork": "Each child connects for itself.",
    },
    "A worker is stopped, cut off or replaced": {
        "11": "Its renewal, fenced writes, completion and chain are refused. It lives and takes new work.",
        "11-parent": "Nothing is taken from it.",
        "17": "What had not begun is handed over at once; what ran starts again under a higher token.",
        "17-rolling": "Every task ends once.",
        "X4": "It goes to a worker that has the code.",
        "X4-deadline": "It waits, is seen, and is a dead letter after `argus_unknown_deadline`.",
    },
    "The broker forgets, repeats or is away": {
        "4": "The tasks are in the store: each runs once, none early.",
        "4-running": "The runs go on and end once.",
        "7": "Runs keep their leases and end once; what was prefetched runs when Redis is back.",
        "8": "One start, one end: second copies are refused and acked.",
        "9": "Each runs once, not early and not late: no message lies with a worker before it is due.",
        "10": "One run; the copies are refused, after its end too.",
        "12": "One start, one end; the workers consume again.",
        "14": "The call returns at once, the row commits with the user's own, the task runs when the broker is back.",
        "18": "The next task was recorded with the end of the first, and runs once.",
        "22": "Each due instant gives one task and one run.",
    },
    "The store": {
        "15": "Never before the commit; after a rollback neither a row nor a run.",
        "24-away": "Workers wait, stay up and go on by themselves. Nothing lapses for it.",
        "X1": "Each goes back once; the next sweep puts back nothing.",
    },
    "Canvas": {
        "18-end": "The first runs again, the second once.",
        "19": "It runs again; the chord's body runs once, with its parts in order.",
        "19-worker": "The same on another worker.",
        "19-fails": "The errback is called once, the body never.",
    },
    "Time and revocation": {
        "21": "It never runs.",
        "21-eta": "It never runs, on no worker.",
        "21-running": "It is told or ended, its outcome stays revoked, its chain never starts.",
        "23": "Nothing starts early, expires or is taken: time is the database's.",
        "X3": "They wait in the store: a worker's memory stays flat, and those due are shared.",
        "X5": "One failure, told once.",
    },
}
"""What happens at each case of the bench, under the headings of the page."""

TOP = """\
# What is guaranteed

An enqueued task has exactly one outcome, whoever dies. It **runs** at least once, and again from its first step that
was not done; whatever it writes through the fence ([transactions](transactions.md), [steps](steps.md),
[effects](effects.md)) is there **once**. Not guaranteed: that a body's other effects happen once (give the other
system `current.task_id` or `current.token`), anything if the store loses what it has committed, and that a stalled
worker stops at once; it only cannot write.

Each line is a test that kills, stops or flushes real processes and servers, on Redis, RabbitMQ and `argus://`, with
SQLite, PostgreSQL and MariaDB, early and late ack, and in every pool, wherever that makes sense: `./dev faults`.
*Recovery* is the time from the fault until the work it hit ran again, median and 99th percentile over the runs. The
leases of the bench last 6 s (30 s by default), its sweep and its dispatches 3 s (5 s and 60 s by default): what a dead
worker had fetched and not begun waits for `argus_dispatch_ttl`, or `argus_steal_after` where a worker is idle. Plain
Celery fails the lines marked with †.
"""


@dataclass
class Result:
    """The runs of one case."""

    runs: int = 0
    ok: int = 0
    recoveries: list[float] = field(default_factory=list)


def main() -> None:
    PAGE.write_text(page())


def page() -> str:
    """The whole page. Its figures are those of the last result; its lines are this module's."""
    head, *_ = lines = RESULT.read_text().splitlines()
    results, tests = _results(lines), _tests()
    parts = [TOP, f"Last run of the whole matrix: {head.split(': ')[-1]}; {lines[1]}.\n"]
    for heading, holds in HOLDS.items():
        parts.append(f"## {heading}\n")
        parts.append("| what fails | what happens | runs ok | recovery | test |\n|---|---|---|---|---|")
        for name, promise in holds.items():
            mark = " †" if case(name).fails_on_stock else ""
            about = case(name).about
            figures = _figures(results.get(name, Result()))
            parts.append(f"| {about[0].upper()}{about[1:]}{mark} | {promise} | {figures} | `{tests[name]}` |")
        parts.append("")
    return "\n".join(parts).rstrip() + "\n"


def _results(lines: list[str]) -> dict[str, Result]:
    found: dict[str, Result] = {}
    for line in lines[5:]:
        if line.startswith("--"):
            continue
        name, _, result, *seconds = line.split()
        one = found.setdefault(name, Result())
        one.runs += 1
        one.ok += result == "ok"
        one.recoveries += [float(seconds[0])] if seconds else []
    return found


def _figures(result: Result) -> str:
    ok = f"{result.ok} of {result.runs}" if result.runs else "not run yet"
    if not result.recoveries:
        return f"{ok} | "
    ordered = sorted(result.recoveries)
    median, worst = (ordered[math.ceil(share * len(ordered)) - 1] for share in (0.5, 0.99))
    return f"{ok} | {median:.1f} s, {worst:.1f} s"


def _tests() -> dict[str, str]:
    """The test of each case, by the marker it bears."""
    found = {}
    for path in sorted(HERE.glob("test_*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef):
                for call in node.decorator_list:
                    if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.case":
                        found[ast.literal_eval(call.args[0])] = node.name
    return found


if __name__ == "__main__":
    main()
