"""Before and after: the same mixed backlog and the same kills with plain Celery and with argus; what a restore takes.

    ./dev bench restore [--live 1000 10000 100000 1000000] [--finished 10000000] [--store URL …] [--write]

First a real drain by three workers of two slots, of tasks that wait and that are scheduled: one worker is killed when
a tenth has ended, a second when a quarter has, and a new one comes in its place; beside them tasks that are cancelled,
and (argus) tasks of a paused project. Then the restore alone, as a worker does it at its boot: on stores filled by SQL
with work in every state, the first call (after which messages are out) and all calls until nothing is left to put back.
Plain Celery has no such thing: its messages come back by the broker's visibility timeout.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from argus_celery.flow import steer
from argus_celery.flow.restore import restore
from argus_celery.records import DispatchReport, HolderFacts
from argus_celery.store.engine import Store
from argus_celery.store.schema import metadata
from benchmarks.harness.filling import KILLED, LOST, fill_up
from benchmarks.harness.killing import READY, all_run
from benchmarks.harness.ledger import Ledger, Line
from benchmarks.harness.place import Place, add_arguments, place
from benchmarks.harness.programs import Programs, came, kill, stop, wait_for
from benchmarks.harness.report import Report, parser
from benchmarks.harness.sides import KILLED as SIDES
from benchmarks.harness.sides import Side
from benchmarks.sides.backlog_side import CANCELLED, PAUSED
from tests.store.bench import Bench

BEFORE_AND_AFTER = ("celery", "celery-late", "celery-late-10s", "argus")
WORKERS = ("zero", "one", "two")
Process = subprocess.Popen[bytes]
ME = HolderFacts("worker-me", "worker-me", "here", 2, "boot", "1", "1")


def main() -> None:
    options = arguments()
    report = Report("restore", options.write)
    with place(options) as here:
        report.say(here.about())
        if not options.no_drain:
            drains(report, options, here)
        restores(report, options, here)
    report.close()


def arguments() -> argparse.Namespace:
    made = parser(__doc__)
    made.add_argument("--tasks", type=int, default=180, help="of 200 ms, in the drain; a sixth more are cancelled")
    made.add_argument("--patience", type=float, default=120, help="seconds that a drain may take after the second kill")
    made.add_argument("--no-drain", action="store_true", help="only the restore on filled stores")
    made.add_argument("--live", type=int, nargs="*", default=[1_000, 10_000, 100_000], help="tasks that have not ended")
    made.add_argument("--finished", type=int, default=100_000, help="tasks that have, beside them")
    made.add_argument("--store", nargs="+", help="empty databases that are used up; else the run's PostgreSQL")
    add_arguments(made)
    return made.parse_args()


# --- the drain --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tally:
    enqueued: int
    done: int
    twice: int
    cancelled_ran: int
    paused_ran: int | None
    resumed: int | None
    """Of the paused project, after its resume; None: there is none."""
    in_hand: int
    again: float | None
    total: float

    @property
    def lost(self) -> int:
        return self.enqueued - self.done


def drains(report: Report, options: argparse.Namespace, here: Place) -> None:
    sides = [one for name in BEFORE_AND_AFTER for one in SIDES if one.name == name]
    tallies = []
    for side in sides:
        report.progress(f"drain, {side.name}")
        tallies.append(drain(side, here, options))
    report.say(
        f"\n{options.tasks} tasks of 200 ms, a sixth of them scheduled; of three workers one killed at a tenth,"
        f" one at a quarter;\nwaited {options.patience:.0f} s after that"
    )
    rows = [["", *(one.name for one in sides)]]
    rows += [[label, *(cell(one) for one in tallies)] for label, cell in _ROWS]
    rows.append(["total, ÷ celery", *(f"{one.total / tallies[0].total:.2f}" for one in tallies)])
    report.table(rows)
    report.say("\n" + "\n".join(f"{one.name}: {one.about}" for one in sides))


def _or(value: float | None, otherwise: str, digits: int = 0) -> str:
    return otherwise if value is None else f"{value:.{digits}f}"


_ROWS: list[tuple[str, Callable[[Tally], str]]] = [
    ("enqueued", lambda one: str(one.enqueued)),
    ("done", lambda one: str(one.done)),
    ("not done in time", lambda one: str(one.lost)),
    ("ran to their end twice", lambda one: str(one.twice)),
    ("cancelled and ran all the same", lambda one: str(one.cancelled_ran)),
    ("paused and ran all the same", lambda one: _or(one.paused_ran, "-")),
    ("ran when the pause was over", lambda one: _or(one.resumed, "-")),
    ("running in the second worker killed", lambda one: str(one.in_hand)),
    ("seconds until the last of those ran again", lambda one: _or(one.again, "never", 1)),
    ("seconds in all", lambda one: f"{one.total:.1f}"),
]


def drain(side: Side, here: Place, options: argparse.Namespace) -> Tally:
    here.empty()
    with tempfile.TemporaryDirectory(prefix="argus-bench-") as name, ExitStack() as running:
        programs = Programs(side.at(here, Path(name)), Path(name), None)
        ledger = Ledger(Path(name) / "ledger")
        programs.run("prepare")
        return _Drain(programs, ledger, running, options).run()


class _Drain:
    def __init__(self, programs: Programs, ledger: Ledger, running: ExitStack, options: argparse.Namespace) -> None:
        self.programs, self.ledger, self.running = programs, ledger, running
        self.count, self.part, self.patience = options.tasks, options.tasks // 6, options.patience
        self.is_argus = programs.side.kind == "argus"

    def run(self) -> Tally:
        zero, _, two = (self._start(name) for name in WORKERS)
        all_ready = partial(all_run, self.programs, self.ledger, set(WORKERS))
        wait_for(all_ready, READY, f"the workers of {self.programs.side.name}", 0.5)
        if self.is_argus:
            self.programs.run("pause", self.part, module="backlog_side")
        self._start("producer", "enqueue", self.count, self.part)
        self._kill_at_work(zero, "zero", 0.1)
        self._start("producer", "cancel", self.part)
        cut_off = self._kill_at_work(two, "two", 0.25)
        killed_at = time.time()
        self._start("three")
        came(lambda: self._done() >= self.count, self.patience, 0.1)
        ended = self.ledger.ended()
        seconds = [line.at for event in ("start", "end") for line in self._live(event)]
        again = [self.ledger.again(what, killed_at) for what in cut_off]
        paused = self._ran(PAUSED)
        return Tally(
            enqueued=self.count,
            done=self._done(),
            twice=sum(times > 1 for times in ended.values()),
            cancelled_ran=self._ran(CANCELLED),
            paused_ran=paused if self.is_argus else None,
            resumed=self._resumed() if self.is_argus else None,
            in_hand=len(cut_off),
            again=None if None in again else max((at - killed_at for at in again if at), default=None),
            total=max(seconds) - min(seconds),
        )

    def _start(self, name: str, *command: object) -> Process:
        worker = self.programs.start(name, *command, module="backlog_side" if command else "")
        self.running.callback(stop, worker, 5)
        return worker

    def _kill_at_work(self, worker: Process, name: str, share: float) -> set[str]:
        """When this share of the tasks has ended and it is running some; returns which."""
        at_work = lambda: self._done() >= self.count * share and self.ledger.in_hand(name) != set()  # noqa: E731
        wait_for(at_work, READY, f"work of {self.programs.side.name}'s worker {name}")
        kill(worker)
        return self.ledger.in_hand(name)

    def _live(self, event: str) -> list[Line]:
        """Of the tasks that are neither paused nor cancelled."""
        return [line for line in self.ledger.lines(event) if int(line.what) < PAUSED]

    def _done(self) -> int:
        return len({line.what for line in self._live("end")})

    def _ran(self, first: int) -> int:
        return sum(first <= int(line.what) < first + 10_000 for line in self.ledger.lines("start"))

    def _resumed(self) -> int:
        self.programs.run("resume", self.part, module="backlog_side")
        came(lambda: self._ran(PAUSED) >= self.part, self.patience, 0.1)
        return self._ran(PAUSED)


# --- the restore alone ------------------------------------------------------------------------------------------------


def restores(report: Report, options: argparse.Namespace, here: Place) -> None:
    if not options.live:
        return
    report.say(f"\nthe restore at a worker's boot, beside {options.finished:,} finished tasks; ÷ is to the first row")
    rows = [["store", "live", "lapsed", "killed", "first call ms", "÷", "all back s", "put back/s", "once more ms"]]
    for url in options.store or [_psycopg(here)]:
        if not options.store:
            here.empty()
        restored(url, 100, 100)  # statements are compiled and the code is warm, as in a worker that runs
        base = None
        for live in options.live:
            report.progress(f"restore, {live:,} live tasks")
            cells = restored(url, live, options.finished)
            base = base or cells.first
            rows.append([cells.store, f"{live:,}", f"{cells.lapsed:,}", f"{cells.killed:,}", f"{cells.first:.1f}"])
            rows[-1] += [f"{cells.first / base:.2f}", f"{cells.all:.2f}", f"{cells.put_back / cells.all:,.0f}"]
            rows[-1] += [f"{cells.once_more:.1f}"]
    report.table(rows)


def _psycopg(here: Place) -> str:
    return here.store.replace("postgresql://", "postgresql+psycopg://")


@dataclass(frozen=True)
class Restored:
    store: str
    lapsed: int
    killed: int
    first: float
    """Milliseconds of the first call."""
    all: float
    """Seconds until a call put nothing back."""
    put_back: int
    once_more: float
    """Milliseconds of a second restore, by another worker, that finds nothing to put back."""


def restored(url: str, live: int, finished: int) -> Restored:
    store = Store(url)
    metadata.drop_all(store.engine)
    metadata.create_all(store.engine)
    bench = Bench(store, settings={"dispatch_ttl": 6000.0, "dispatch_ttl_max": 6000.0})
    found = fill_up(bench, live, finished, _projects(bench))
    began = time.perf_counter()
    report, first = _restore(bench)
    put_back, last = set(report.lapsed), report
    while last.lapsed or last.ended or last.dispatched:
        last, _ = _restore(bench)
        put_back |= set(last.lapsed)
    seconds = time.perf_counter() - began
    again, once_more = _restore(bench)
    assert not again.lapsed and not again.dispatched, again
    assert len(put_back) == found[LOST.id] + found[KILLED.id], (len(put_back), found)
    metadata.drop_all(store.engine)
    store.dispose()
    return Restored(store.dialect_name, found[LOST.id], found[KILLED.id], first, seconds, len(put_back), once_more)


def _projects(bench: Bench) -> dict[str, int]:
    bench.enqueue()
    bench.sent.clear()
    ids = {name: steer.open_project(bench.rt, name) for name in ("open", "paused", "cancelled")}
    steer.pause(bench.rt, "paused")
    steer.cancel(bench.rt, "cancelled")
    return ids


def _restore(bench: Bench) -> tuple[DispatchReport, float]:
    began = time.perf_counter()
    report = restore(bench.rt, ME, lambda facts: facts.id == KILLED.id)
    bench.sent.clear()
    return report, (time.perf_counter() - began) * 1000


if __name__ == "__main__":
    main()
