"""``./dev chaos``: mixed work on real workers while an adversary breaks what it can. A seed replays its run.

Without a server on the machine it runs with the embedded broker on SQLite, which is the default.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from random import randrange

from tests.chaos import report
from tests.chaos.options import Options
from tests.chaos.run import run
from tests.faults.matrix import BROKERS, STORES

SHOWN = 30
"""Violations of one run that are printed."""


def main(arguments: list[str]) -> int:
    options = parser().parse_args(arguments)
    seed = options.seed if options.seed is not None else randrange(10**6)
    base = Options(
        options.broker, options.store, options.workers, options.minutes, seed, options.backlog, options.every
    )
    matrix = [(broker, store) for store in STORES for broker in BROKERS]
    results = []
    for broker, store in matrix if options.matrix else [(base.broker, base.store)]:
        one = play(replace(base, broker=broker, store=store))
        results.append(one)
        if options.journal:
            report.note(options.journal, one)
    print("\n" + report.table(report.read(options.journal) if options.journal else results))
    return int(not all(one.ok for one in results))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="./dev chaos", description=(__doc__ or "").split("\n")[0])
    made.add_argument("--minutes", type=float, default=2.0, help="how long work is sent, in each run")
    made.add_argument("--seed", type=int, help="what is sent, and which faults come after how much of it")
    made.add_argument("--broker", choices=BROKERS, default="argus")
    made.add_argument("--store", choices=STORES, default="sqlite")
    made.add_argument("--workers", type=int, choices=range(2, 7), default=4)
    made.add_argument("--backlog", type=int, default=150, help="tasks that are sent and have not ended, at most")
    made.add_argument("--every", type=int, default=70, help="tasks that end between two faults, on average")
    made.add_argument("--matrix", action="store_true", help="on every broker and store, one after the other")
    made.add_argument("--journal", type=Path, metavar="FILE", help="add the results to those in FILE, and report all")
    return made


def play(options: Options) -> report.Result:
    """One run; what it leaves behind is kept if it failed."""
    folder = Path(tempfile.mkdtemp(prefix="argus-chaos-"))
    again = f"--seed {options.seed} --broker {options.broker} --store {options.store} --workers {options.workers}"
    say(f"{options.place}, ack {options.ack}: {again} --minutes {options.minutes:g}")
    verdict = run(options, folder)
    for violation in verdict.violations[:SHOWN]:
        say(f"  {violation}")
    if verdict.violations:
        say(f"  {len(verdict.violations)} violations. Ledger and logs: {folder}. Again: ./dev chaos {again}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return verdict.result


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
