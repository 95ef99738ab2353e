"""Celery, argus, DBOS and Procrastinate on the same machine, broker and database, in turn.

    ./dev bench peers --peer …/bin/python [--only drain latency kill] [--sides argus dbos] [--quick] [--write]

drain: no-op tasks, two slots: enqueued one by one, in bulk, and drained by one worker. CPU is that of the client, the
worker and both servers; commits and fsyncs are PostgreSQL's own counts, of enqueue + run. latency: tasks that come at
50 a second, from enqueue to start; and what an idle worker costs. kill: tasks of 200 ms, two workers of two slots, one
killed by SIGKILL, another at once in its place. Ratios are of each round to plain Celery in the same round; medians,
with ranges. Absolute rates say little on a shared machine: compare ratios, and take less than 20 % for nothing.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.harness import killing, sides
from benchmarks.harness.ledger import Ledger
from benchmarks.harness.place import Place, add_arguments, place
from benchmarks.harness.programs import Programs, wait_for
from benchmarks.harness.report import Report, median, parser, quantile, ranged, ratios
from benchmarks.harness.sides import KILLED, PLAIN, SIDES, Left, Side
from benchmarks.harness.usage import cpu, memory

LATENCY_RATE = 50
SETTLE = 12.0
"""Seconds until a server process has told its counts while it idles."""
PATIENCE = 300.0
Figures = dict[str, float]
Rounds = dict[str, list[Figures]]


def main() -> None:
    options = arguments()
    report = Report("peers", options.write)
    with place(options) as here:
        report.say(here.about())
        if "drain" in options.only:
            drains(report, options, here)
        if "latency" in options.only:
            latencies(report, options, here)
        if "kill" in options.only:
            kills(report, options, here)
    report.close()


def arguments() -> argparse.Namespace:
    made = parser(__doc__)
    made.add_argument("--tasks", type=int, default=2000, help="no-op tasks in a drain")
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument("--only", nargs="+", choices=["drain", "latency", "kill"], default=["drain", "latency", "kill"])
    made.add_argument("--seconds", type=float, default=20, help="of 50 tasks each, for the latency, and of idling")
    made.add_argument("--killed", type=int, default=120, help="tasks of 200 ms in a drain with a kill")
    made.add_argument("--patience", type=float, default=120, help="seconds that a drain with a kill may take")
    made.add_argument("--quick", action="store_true", help="a look whether it works: one small round")
    sides.add_arguments(made)
    add_arguments(made)
    options = made.parse_args()
    if options.quick:
        options.tasks, options.rounds, options.seconds = 300, 1, 4
        options.killed, options.patience = 40, 30
    return options


@contextmanager
def fresh(side: Side, here: Place, options: argparse.Namespace) -> Iterator[Programs]:
    """The side on an empty database and an empty broker."""
    here.empty()
    with tempfile.TemporaryDirectory(prefix="argus-bench-") as name:
        programs = Programs(side.at(here, Path(name)), Path(name), options.peer)
        programs.run("prepare")
        yield programs


# --- drain ------------------------------------------------------------------------------------------------------------


def drains(report: Report, options: argparse.Namespace, here: Place) -> None:
    rounds: Rounds = {one.name: [] for one in sides.chosen(SIDES, options)}
    for _ in range(options.rounds):
        for side in sides.chosen(SIDES, options):
            report.progress(f"drain, {side.name}")
            rounds[side.name].append(drained(side, here, options))
    report.say(f"\n{options.tasks} no-op tasks, 2 slots, rounds: {options.rounds}; ÷ is the ratio to {PLAIN}")
    rates = [["", "one by one/s", "÷", "bulk/s", "÷", "drain/s", "÷"]]
    costs = [["", "CPU s per 1,000", "÷", "client", "worker", "servers", "commits", "fsyncs", "WAL KiB", "worker MiB"]]
    for name, figures in rounds.items():
        rates.append([name, *(cell for one in ("one", "bulk", "drain") for cell in rated(rounds, name, one))])
        costs.append([name, column(figures, "cpu", 2), ranged(against(rounds, name, "cpu"))])
        costs[-1] += [column(figures, one, 2) for one in ("client", "worker", "servers")]
        pairs = [("commits_in", "commits_run"), ("syncs_in", "syncs_run")]
        costs[-1] += [" + ".join(column(figures, one, 2) for one in pair) for pair in pairs]
        costs[-1] += [column(figures, "wal", 1), column(figures, "memory")]
    report.table(rates)
    report.table(costs)
    described(report, sides.chosen(SIDES, options))


def drained(side: Side, here: Place, options: argparse.Namespace) -> Figures:
    count = options.tasks
    with fresh(side, here, options) as programs:
        rate = programs.run("bulk", count)["rate"]
    with fresh(side, here, options) as programs:
        before, used = here.counters(), cpu(*here.servers)
        sent = programs.run("one", count)
        enqueuing, enqueued = cpu(*here.servers) - used, here.counters()
        figures = run_down(programs, here, int(sent["sent"]))
        ended = here.counters().since(enqueued)
    entered = enqueued.since(before)
    client, servers = sent["cpu"] / count * 1000, figures["servers"] + enqueuing / count * 1000
    return {
        "one": sent["rate"],
        "bulk": rate,
        "drain": figures["drain"],
        "cpu": client + figures["worker"] + servers,
        "client": client,
        "worker": figures["worker"],
        "servers": servers,
        "commits_in": entered.commits / count,
        "commits_run": (ended.commits - figures["asked"]) / count,
        "syncs_in": entered.syncs / count,
        "syncs_run": ended.syncs / count,
        "wal": (entered.wal + ended.wal) / count / 1024,
        "memory": figures["memory"],
    }


def run_down(programs: Programs, here: Place, count: int) -> Figures:
    """Drain what waits with one worker: the rate and the CPU from the first task taken to the last done."""
    left = Left(programs.side, here)
    with programs.worker() as worker:
        wait_for(lambda: left() < count, PATIENCE, f"the first task of {programs.side.name}", 0.01)
        began, had = time.perf_counter(), left()
        used = cpu(worker.pid), cpu(*here.servers)
        wait_for(lambda: left() == 0, PATIENCE, f"the end of the tasks of {programs.side.name}", 0.05)
        seconds = time.perf_counter() - began
        spent = cpu(worker.pid) - used[0], cpu(*here.servers) - used[1]
        held = memory(worker.pid)
    left.close()
    share = max(had, 1) / 1000
    return {
        "drain": had / seconds,
        "worker": spent[0] / share,
        "servers": spent[1] / share,
        "memory": held,
        "asked": left.asked,
    }


# --- latency ----------------------------------------------------------------------------------------------------------


def latencies(report: Report, options: argparse.Namespace, here: Place) -> None:
    rows = [["", "p50 ms", "p95", "p99", "idle: CPU ms/s", "commits/s"]]
    for side in sides.chosen(SIDES, options):
        report.progress(f"latency, {side.name}")
        rows.append([side.name, *started(side, here, options)])
    report.say(f"\nfrom enqueue to start at {LATENCY_RATE} tasks/s, {options.seconds:.0f} s; then an idle worker")
    report.table(rows)


def started(side: Side, here: Place, options: argparse.Namespace) -> list[str]:
    count = round(options.seconds * LATENCY_RATE)
    with fresh(side, here, options) as programs, programs.worker() as worker:
        ledger = Ledger(programs.folder / "ledger")
        wait_for(lambda: _runs(programs, ledger), PATIENCE, f"a worker of {side.name}", 0.5)
        warm = len(ledger.lines("stamp"))
        programs.run("trickle", count, LATENCY_RATE)
        wait_for(lambda: len(ledger.lines("stamp")) >= warm + count, PATIENCE, f"the tasks of {side.name}", 0.2)
        taken = [(line.at - float(line.what)) * 1000 for line in ledger.lines("stamp")[warm:]]
        time.sleep(SETTLE)
        used, before = cpu(worker.pid, *here.servers), here.counters()
        time.sleep(options.seconds)
        idle = (cpu(worker.pid, *here.servers) - used) / options.seconds * 1000
        commits = here.counters().since(before).commits / options.seconds
    return [*(f"{quantile(taken, share):.1f}" for share in (0.5, 0.95, 0.99)), f"{idle:.1f}", f"{commits:.1f}"]


def _runs(programs: Programs, ledger: Ledger) -> bool:
    """Two rounds have come back, so that both slots are warm and nothing is on its way."""
    programs.run("trickle", LATENCY_RATE, LATENCY_RATE)
    lines = len(ledger.lines("stamp"))
    return lines >= 2 * LATENCY_RATE and lines % LATENCY_RATE == 0


# --- kill -------------------------------------------------------------------------------------------------------------


def kills(report: Report, options: argparse.Namespace, here: Place) -> None:
    rows = [["", "not done", "ran twice", "were running", "ran again after s", "seconds in all", "÷"]]
    base = None
    for side in sides.chosen(KILLED, options):
        report.progress(f"kill, {side.name}")
        with fresh(side, here, options) as programs:
            ended = killing.drain(programs, options.killed, 0.2, options.patience)
        base = base or ended.total
        again = "never" if ended.again is None else f"{ended.again:.1f}"
        rows.append([side.name, str(ended.missing), str(ended.twice), str(ended.in_hand), again])
        rows[-1] += [f"{ended.total:.1f}", f"{ended.total / base:.2f}"]
        report.progress(", ".join(f"{head} {cell}" for head, cell in zip(rows[0][1:], rows[-1][1:], strict=True)))
    report.say(
        f"\n{options.killed} tasks of 200 ms, two workers, one killed, another at once; waited {options.patience:.0f} s"
    )
    report.table(rows)
    described(report, sides.chosen(KILLED, options))


# --- cells ------------------------------------------------------------------------------------------------------------


def column(figures: list[Figures], name: str, digits: int = 0) -> str:
    return median([one[name] for one in figures], digits)


def against(rounds: Rounds, name: str, figure: str) -> list[float]:
    take: Callable[[str], list[float]] = lambda side: [one[figure] for one in rounds[side]]  # noqa: E731
    return ratios(take(name), take(PLAIN))


def rated(rounds: Rounds, name: str, figure: str) -> tuple[str, str]:
    return column(rounds[name], figure), ranged(against(rounds, name, figure))


def described(report: Report, these: list[Side]) -> None:
    report.say("\n" + "\n".join(f"{one.name}: {one.about}" for one in these))


if __name__ == "__main__":
    main()
