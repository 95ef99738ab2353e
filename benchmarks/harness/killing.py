"""Two workers drain, one is killed half-way, and another takes its place at once."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.harness.ledger import Ledger
from benchmarks.harness.programs import Programs, came, kill, stop, wait_for

READY = 120.0


@dataclass(frozen=True)
class Outcome:
    tasks: int
    missing: int
    """Not run to their end when the patience was over, or nothing was left to wait for."""
    twice: int
    """Run to their end more than once."""
    in_hand: int
    """Running in the killed worker."""
    again: float | None
    """Seconds from the kill until the last of those ran again; None: one never did."""
    total: float
    """Seconds from the first start to the last end."""


def drain(programs: Programs, tasks: int, seconds: float, patience: float) -> Outcome:
    """Enqueue ``tasks`` that each take ``seconds``, and kill worker two when a quarter of them has ended."""
    ledger = Ledger(programs.folder / "ledger")
    with ExitStack() as running:
        one, two = (programs.start(name) for name in ("one", "two"))
        for worker in (one, two):
            running.callback(stop, worker, 5)
        wait_for(lambda: all_run(programs, ledger, {"one", "two"}), READY, "both workers", 0.5)
        running.callback(stop, programs.start("producer", "work", tasks, seconds))
        what = f"a quarter of the tasks of {programs.side.name}"
        wait_for(lambda: len(ledger.ended()) >= tasks / 4 and ledger.in_hand("two") != set(), 120, what)
        kill(two)
        killed_at, cut_off = time.time(), ledger.in_hand("two")
        running.callback(stop, programs.start("two" if programs.side.same_again else "three"), 5)
        came(lambda: len(ledger.ended()) >= tasks, patience, 0.1)
        return _outcome(ledger, tasks, cut_off, killed_at)


def all_run(programs: Programs, ledger: Ledger, workers: set[str]) -> bool:
    """Has each worker run something? Gives them something to run."""
    programs.run("trickle", 10, 100)
    return workers <= {line.worker for line in ledger.lines("stamp")}


def _outcome(ledger: Ledger, tasks: int, cut_off: set[str], killed_at: float) -> Outcome:
    ended = ledger.ended()
    again = [ledger.again(what, killed_at) for what in cut_off]
    known = [at - killed_at for at in again if at is not None]
    lines = ledger.lines()
    return Outcome(
        tasks=tasks,
        missing=tasks - len(ended),
        twice=sum(times > 1 for times in ended.values()),
        in_hand=len(cut_off),
        again=max(known) if len(known) == len(again) and known else None,
        total=max(line.at for line in lines if line.event == "end")
        - min(line.at for line in lines if line.event == "start"),
    )
