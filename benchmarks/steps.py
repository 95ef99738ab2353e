"""Steps a second, and tasks with one step a second, beside DBOS in the same run.

    python benchmarks/steps.py --store postgresql+psycopg://…/bench --store sqlite:////tmp/bench.db --peer …/bin/python

Each store is an empty database, which is used up; the peer gets one of its own beside it, ``…_peer``, made before.
``--peer`` is a Python that has dbos (``pip install dbos``); without it only Argus is measured. Both have their workers
in their own process, functions that do nothing, and their defaults, but that DBOS polls its queue every 20 ms and not
every second. The two are measured in turn, each in a process of its own; figures are medians, with the range.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    options = arguments()
    print(f"{time.strftime('%Y-%m-%d')}, Python {platform.python_version()}, {os.cpu_count()} cores,")
    print(f"{options.rounds} rounds of {options.steps} steps in one task, then {options.tasks} tasks with one step\n")
    print(f"{'store':12} {'':8} {'steps/s':>8} {'':14} {'tasks/s':>8}")
    for store in options.store:
        sides = {"argus": [sys.executable, str(HERE / "steps_argus.py"), store]}
        if options.peer:
            sides["dbos"] = [options.peer, str(HERE / "steps_dbos.py"), of_peer(store)]
        measured: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
        for _ in range(options.rounds):
            for side, command in sides.items():
                measured[side].append(measure([*command, str(options.steps), str(options.tasks)]))
        for side, figures in measured.items():
            cells = "  ".join(told([one[name] for one in figures]) for name in ("steps", "tasks"))
            print(f"{store.split(':')[0].split('+')[0]:12} {side:8} {cells}", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--store", action="append", required=True)
    parser.add_argument("--peer")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--tasks", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


def of_peer(store: str) -> str:
    """The peer names no driver in its URL."""
    if store.startswith("sqlite"):
        return store.replace(".db", "_peer.db")
    return store.replace("+psycopg", "") + "_peer"


def measure(command: list[str]) -> dict[str, float]:
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE.parent)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr[-2000:]}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def told(figures: list[float]) -> str:
    return f"{statistics.median(figures):>8.0f} ({min(figures):.0f}-{max(figures):.0f})".ljust(22)


if __name__ == "__main__":
    main()
