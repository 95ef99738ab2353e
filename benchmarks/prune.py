"""What a running prune takes from the throughput beside it.

    ./dev bench prune STORE_URL [STORE_URL …] [--write]      (an empty database each: its tables are dropped)

One process enqueues, claims and completes tasks in batches of 20, without pause. Another prunes 100,000 ended tasks
that are past their time: as workers do (a slice of 50 ms, then a pause of a second), and flat out as the command does.
The phases alternate, so that what else the machine does falls on all alike. Prints tasks a second.
"""

from __future__ import annotations

import itertools
import multiprocessing
import statistics
import time
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from argus_celery.flow.claim import claim
from argus_celery.flow.complete import complete_many
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.enqueue import enqueue
from argus_celery.flow.prune import PAUSE, SLICE, Pruning
from argus_celery.records import Delivery, Outcome, TaskState
from argus_celery.store.engine import Store
from argus_celery.store.pruning import Ages
from argus_celery.store.schema import attempts, metadata, tasks
from benchmarks.harness.report import Report, parser
from tests.store.bench import Bench, new_task

ENDED = 100_000
DAY_MS = 24 * 3600 * 1000
PHASE = 5.0
ROUNDS = 5
numbers = itertools.count()


def main() -> None:
    made = parser(__doc__)
    made.add_argument("store", nargs="+")
    options = made.parse_args()
    report = Report("prune", options.write)
    heads = ["tasks/s", "alone", "beside a worker's", "÷", "beside the command", "÷", "pruned/s"]
    report.table([heads, *(measure(url) for url in options.store)])
    report.close()


def measure(url: str) -> list[str]:
    store = Store(url)
    metadata.drop_all(store.engine)
    metadata.create_all(store.engine)
    bench = Bench(store)
    bench.enqueue()  # makes the default project
    throughput(bench, 1.0)
    rates: dict[str, list[float]] = {"alone": [], "worker": [], "command": []}
    speeds: dict[str, list[float]] = {"worker": [], "command": []}
    for _ in range(ROUNDS):
        fill_up(bench)
        rates["alone"].append(throughput(bench, PHASE))
        for name, work in (("worker", as_workers_do), ("command", flat_out)):
            fill_up(bench)
            rate, speed = beside(bench, url, work)
            rates[name].append(rate)
            speeds[name].append(speed)
    metadata.drop_all(store.engine)
    store.dispose()
    alone, worker, command = (statistics.median(rates[name]) for name in ("alone", "worker", "command"))
    pruned = " / ".join(f"{statistics.median(speeds[name]):,.0f}" for name in ("worker", "command"))
    figures = [f"{alone:,.0f}", f"{worker:,.0f}", f"{worker / alone:.2f}", f"{command:,.0f}", f"{command / alone:.2f}"]
    return [store.dialect_name, *figures, pruned]


def throughput(bench: Bench, seconds: float) -> float:
    """Tasks enqueued, claimed and completed in a second."""
    began, done = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        enqueue(bench.rt, [new_task() for _ in range(20)])
        if not bench.sent:
            dispatch(bench.rt)  # the window was full, as far as it was known
        taken = [Delivery(one.task_id, one.token) for one in bench.sent]
        bench.sent.clear()
        claims = [one for one in claim(bench.rt, "w1", taken) if one is not None]
        complete_many(bench.rt, [(one, Outcome(TaskState.SUCCEEDED, b"{}")) for one in claims])
        done += len(claims)
    return done / (time.monotonic() - began)


Work = Callable[[str, Any], None]


def beside(bench: Bench, url: str, work: Work) -> tuple[float, float]:
    """Throughput, and how many rows the other process pruned in a second meanwhile."""
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    other = context.Process(target=work, args=(url, ready), daemon=True)
    other.start()
    ready.wait()
    before, began = old(bench), time.monotonic()
    rate = throughput(bench, PHASE)
    pruned = (before - old(bench)) / (time.monotonic() - began)
    other.terminate()
    other.join()
    return rate, pruned


def as_workers_do(url: str, ready: Any) -> None:
    going = Pruning(Bench(Store(url)).rt, lambda: Ages(DAY_MS, None))
    ready.set()
    while True:
        going.run_once(SLICE)
        time.sleep(PAUSE)


def flat_out(url: str, ready: Any) -> None:
    going = Pruning(Bench(Store(url)).rt, lambda: Ages(DAY_MS, None))
    ready.set()
    while True:
        going.run_once()


def old(bench: Bench) -> int:
    query = sa.select(sa.func.count()).select_from(tasks).where(tasks.c.id.like("old-%"))
    return int(bench.store.statement(lambda connection: connection.execute(query).scalar_one()))


def fill_up(bench: Bench) -> None:
    """Ended tasks of the default project, past their time, with a run each and half a kilobyte of message."""
    task = {"project_id": 1, "name": "t", "queue": "celery", "priority": 0, "message": "{}", "body": b"x" * 500}
    ended = {**task, "max_losses": 5, "outcome": "succeeded", "attempts": 1, "created_at": 0, "finished_at": 1}
    run = {"token": 2, "holder": "w1", "started_at": 0, "finished_at": 1, "outcome": "succeeded"}
    missing = ENDED - old(bench)
    with bench.store.engine.begin() as connection:
        for start in range(0, missing, 5_000):
            ids = [f"old-{next(numbers)}" for _ in range(start, min(start + 5_000, missing))]
            connection.execute(sa.insert(tasks), [{"id": one, **ended} for one in ids])
            connection.execute(sa.insert(attempts), [{"task_id": one, **run} for one in ids])


if __name__ == "__main__":
    main()
