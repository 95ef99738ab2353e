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
from tests.chaos.faults import KINDS, fitting, lacks
from tests.chaos.options import Options
from tests.chaos.run import run
from tests.faults.matrix import BROKERS, STORES
from tests.services import ServiceMissing

SHOWN = 30
"""Violations of one run that are printed."""


def main(arguments: list[str]) -> int:
    given = parser().parse_args(arguments)
    seed = given.seed if given.seed is not None else randrange(10**6)
    pace = {"backlog": given.backlog, "every": given.every, "faults": tuple(given.faults)}
    base = Options(given.broker, given.store, given.workers, given.minutes, seed, **pace)
    if not fitting(base) and not given.matrix:
        say(f"none of these faults makes sense on {base.place}: {', '.join(base.faults)}")
        return 2
    for kind in KINDS:
        if missing := lacks(kind):
            say(f"without the fault {kind.name!r}: {missing}")
    results = [played for place in places(base, given.matrix) if (played := play(place, given.journal))]
    print("\n" + report.table(report.read(given.journal) if given.journal else results))
    return int(not results or not all(one.ok for one in results))


def places(base: Options, matrix: bool) -> list[Options]:
    every = [replace(base, broker=broker, store=store) for store in STORES for broker in BROKERS]
    return [one for one in every if fitting(one)] if matrix else [base]


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="./dev chaos", description=(__doc__ or "").split("\n")[0])
    made.add_argument("--minutes", type=float, default=2.0, help="how long work is sent, in each run")
    made.add_argument("--seed", type=int, help="what is sent, and which faults come after how much of it")
    made.add_argument("--broker", choices=BROKERS, default="argus")
    made.add_argument("--store", choices=STORES, default="sqlite")
    made.add_argument("--workers", type=int, choices=range(2, 7), default=4)
    made.add_argument("--backlog", type=int, default=150, help="tasks that are sent and have not ended, at most")
    made.add_argument("--every", type=int, default=70, help="tasks that end between two faults, on average")
    made.add_argument("--faults", nargs="+", choices=[one.name for one in KINDS], default=[], help="only these kinds")
    made.add_argument("--matrix", action="store_true", help="on every broker and store, one after the other")
    made.add_argument("--journal", type=Path, metavar="FILE", help="add the results to those in FILE, and report all")
    return made


def play(options: Options, journal: Path | None) -> report.Result | None:
    """One run; what it leaves behind is kept if it failed. None if the machine lacks a server for it."""
    folder = Path(tempfile.mkdtemp(prefix="argus-chaos-"))
    say(f"./dev chaos {options.command}")
    try:
        verdict = run(options, folder)
    except ServiceMissing as missing:
        say(f"  left out: {missing}")
        shutil.rmtree(folder, ignore_errors=True)
        return None
    for violation in verdict.violations[:SHOWN]:
        say(f"  {violation}")
    if verdict.violations:
        say(f"  {len(verdict.violations)} violations; ledger, faults and logs: {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    if journal:
        report.note(journal, verdict.result)
    return verdict.result


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
