"""Steps a second, and tasks with one step a second, beside DBOS in the same run.

    ./dev bench steps --store postgresql+psycopg://…/bench --store sqlite:////tmp/bench.db --peer …/bin/python

Each store is an empty database, which is used up; the peer gets one of its own beside it, ``…_peer``, made before.
``--peer`` is a Python that has dbos (``pip install dbos``); without it only Argus is measured. Both have their workers
in their own process, functions that do nothing, and their defaults, but that DBOS polls its queue every 20 ms and not
every second. The two are measured in turn, each in a process of its own; figures are medians, with the range.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

from benchmarks.harness.programs import ROOT
from benchmarks.harness.report import Report, parser, ranged, ratios


def main() -> None:
    options = arguments()
    report = Report("steps", options.write)
    report.say(f"{options.rounds} rounds: {options.steps} steps in a task, then {options.tasks} tasks with one step")
    rows = [["store", "", "steps/s", "÷ argus", "tasks/s", "÷ argus"]]
    for store in options.store:
        sides = {"argus": [sys.executable, "-m", "benchmarks.sides.steps_argus", store]}
        if options.peer:
            sides["dbos"] = [options.peer, "-m", "benchmarks.sides.steps_dbos", of_peer(store)]
        measured: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
        for _ in range(options.rounds):
            for side, command in sides.items():
                measured[side].append(measure([*command, str(options.steps), str(options.tasks)]))
        rows += [[store.split(":")[0].split("+")[0], side, *cells(measured, side)] for side in sides]
    report.table(rows)
    report.close()


def arguments() -> argparse.Namespace:
    made = parser(__doc__)
    made.add_argument("--store", action="append", required=True)
    made.add_argument("--peer")
    made.add_argument("--steps", type=int, default=1000)
    made.add_argument("--tasks", type=int, default=300)
    made.add_argument("--rounds", type=int, default=5)
    return made.parse_args()


def cells(measured: dict[str, list[dict[str, float]]], side: str) -> list[str]:
    found = []
    for figure in ("steps", "tasks"):
        values, bases = ([one[figure] for one in measured[name]] for name in (side, "argus"))
        found += [ranged(values, 0), ranged(ratios(values, bases))]
    return found


def of_peer(store: str) -> str:
    """The peer names no driver in its URL."""
    if store.startswith("sqlite"):
        return store.replace(".db", "_peer.db")
    return store.replace("+psycopg", "") + "_peer"


def measure(command: list[str]) -> dict[str, float]:
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr[-2000:]}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


if __name__ == "__main__":
    main()
