"""The run itself: two workers drain the modules, one is killed half-way and comes back under another name."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from examples.stdlib import journal, place, results
from examples.stdlib.modules import Sum
from examples.stdlib.sides import Side
from examples.workers import Worker, wait_for

KILL_AT = 0.3
"""Share of the modules that are recorded when the worker is killed."""

Watch = Callable[[int, str | None], None]
"""Told how many modules are recorded, and now and then what has just happened."""


@dataclass(frozen=True, slots=True)
class Tally:
    enqueued: int
    done: int
    ran_twice: int
    recorded_twice: int
    cut_off: int
    """Tasks that were running in the killed worker."""
    again: float | None
    """Seconds from the kill until the last of these ran again; None: one never did."""
    second_restore: int | None
    """What a second restore, right after the first, enqueued; None: there is no restore."""
    total: Sum
    seconds: float

    @property
    def lost(self) -> int:
        return self.enqueued - self.done


def drain(side: Side, paths: list[str], watch: Watch) -> Tally:
    results.make(side.database)
    began = time.monotonic()
    with results.kept_open(side.database), ExitStack() as running:
        workers = [_start(side, name, running) for name in ("one", "two")]
        for worker in workers:
            worker.wait_ready()
        side.enqueue(paths)
        _wait_for_share(side, len(paths), watch)
        killed_at, cut_off = _kill_at_work(side, workers[1])
        watch(results.done(side.database), f"killed worker two, which was running {len(cut_off)} tasks")
        replacement = _start(side, "three", running)
        replacement.wait_ready()
        waited = time.monotonic() - killed_at
        watch(results.done(side.database), f"worker three is there in its place, {waited:.1f} s after the kill")
        second = side.restore_again(lambda: _again(side, cut_off, killed_at) is not None)
        side.wait_drained(lambda: watch(results.done(side.database), None))
        total = side.sum_up()
        for worker in (workers[0], replacement):
            worker.ask_to_end()  # together; each is waited for at the end of the block
    return Tally(
        enqueued=len(paths),
        done=results.done(side.database),
        ran_twice=journal.ran_twice(journal.read(place.starts(side.name))),
        recorded_twice=sum(count > 1 for count in results.recorded(side.database).values()),
        cut_off=len(cut_off),
        again=_again(side, cut_off, killed_at),
        second_restore=second,
        total=total,
        seconds=time.monotonic() - began,
    )


def _start(side: Side, name: str, running: ExitStack) -> Worker:
    worker = Worker(f"examples.stdlib.{side.module}", name, place.folder)
    running.callback(worker.stop)
    return worker


def _wait_for_share(side: Side, enqueued: int, watch: Watch) -> None:
    def reached() -> bool:
        count = results.done(side.database)
        watch(count, None)
        return count >= enqueued * KILL_AT

    wait_for(reached, 60, f"{KILL_AT:.0%} of the modules")


def _kill_at_work(side: Side, worker: Worker) -> tuple[float, set[str]]:
    """Kill it while both children are inside a task: frozen first, to be sure of it."""
    for _ in range(200):
        worker.freeze()
        if len(_cut_off(side, worker)) >= 2:
            break
        worker.thaw()
        time.sleep(0.01)
    worker.kill()
    return time.monotonic(), _cut_off(side, worker)


def _cut_off(side: Side, worker: Worker) -> set[str]:
    starts = journal.read(place.starts(side.name))
    return journal.cut_off(starts, worker.pid, results.recorded(side.database))


def _again(side: Side, cut_off: set[str], killed_at: float) -> float | None:
    return journal.started_again(journal.read(place.starts(side.name)), cut_off, killed_at)
