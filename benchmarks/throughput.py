"""Durable tasks beside plain Celery in the same run: enqueue, drain, transactions per task, CPU, and what idling costs.

    python benchmarks/throughput.py --tasks 2000 --store postgresql+psycopg://… --broker redis://…/5

The store is an empty database and the broker an empty one: both are used up. Figures are ratios to plain Celery next to
it; absolute rates say little on a shared machine. Transactions are PostgreSQL's own count (pg_stat_database).
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

WORKERS, CHILDREN = 2, 2


@dataclass
class Figures:
    name: str
    enqueue: float
    bulk: float
    drain: float
    cpu: float
    commits: float | None


def main() -> None:
    options = arguments()
    os.environ |= {"BENCH_STORE": options.store, "BENCH_BROKER": options.broker}
    print(
        f"{time.strftime('%Y-%m-%d')}, Python {platform.python_version()}, {os.cpu_count()} cores, pool {options.pool},"
    )
    print(f"{options.tasks} no-op tasks, {WORKERS} workers x {CHILDREN}, broker {options.broker.split(':')[0]}\n")
    rounds = [[measure(kind, options) for kind in ("plain", "durable")] for _ in range(options.rounds)]
    for plain, durable in rounds:
        show(plain, durable)
    print(f"\nidle worker: {idle(options):.2f} transactions a second")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pool", default="prefork")
    parser.add_argument("--store", required=True)
    parser.add_argument("--broker", required=True)
    return parser.parse_args()


def show(plain: Figures, durable: Figures) -> None:
    print(f"{'':8} {'enqueue/s':>10} {'bulk/s':>10} {'drain/s':>10} {'CPU s/1000':>11} {'transactions/task':>18}")
    for one in (plain, durable):
        commits = "" if one.commits is None else f"{one.commits:.2f}"
        print(f"{one.name:8} {one.enqueue:>10.0f} {one.bulk:>10.0f} {one.drain:>10.0f} {one.cpu:>11.2f} {commits:>18}")
    print(
        f"{'ratio':8} {durable.enqueue / plain.enqueue:>10.2f} {durable.bulk / plain.bulk:>10.2f}"
        f" {durable.drain / plain.drain:>10.2f} {durable.cpu / plain.cpu:>11.2f}\n"
    )


def measure(kind: str, options: argparse.Namespace) -> Figures:
    from benchmarks import throughput_app as bench

    task, count = (bench.plain if kind == "plain" else bench.durable_noop), options.tasks
    before = commits(options.store)
    began = time.perf_counter()
    for _ in range(count):
        task.delay()
    enqueue = count / (time.perf_counter() - began)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    with workers(options.pool):
        drain = drained(kind, count)
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = (now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime) / count * 1000
    made = None if kind == "plain" else (commits(options.store) - before) / count
    began = time.perf_counter()
    if kind == "plain":
        for _ in range(count):
            task.delay()
    else:
        bench.argus.project("bulk").enqueue_many(task.s() for _ in range(count))
    bulk = count / (time.perf_counter() - began)
    with workers(options.pool):
        drained(kind, count)
    return Figures(kind, enqueue, bulk, drain, cpu, made)


def drained(kind: str, count: int) -> float:
    """Tasks a second from the first taken to the last done, as the broker and the store see it."""
    from benchmarks import throughput_app as bench

    began = None
    while (left := bench.left(kind)) > 0:
        if began is None and left < count:
            began, had = time.perf_counter(), left
        time.sleep(0.02)
    return had / (time.perf_counter() - began) if began else float("nan")


def commits(url: str) -> int:
    if not url.startswith("postgresql"):
        return 0
    time.sleep(1.1)  # the server gathers its statistics once a second
    engine = sa.create_engine(url, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        query = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        return int(connection.exec_driver_sql(query).scalar() or 0)


@contextmanager
def workers(pool: str, number: int = WORKERS) -> Iterator[None]:
    command = [sys.executable, "-m", "celery", "-A", "benchmarks.throughput_app", "worker", "-P", pool, "-l", "ERROR"]
    with tempfile.TemporaryFile() as log:
        started = [
            subprocess.Popen([*command, "-c", str(CHILDREN), "-n", f"w{n}@%h"], cwd=ROOT, stdout=log, stderr=log)
            for n in range(number)
        ]
        try:
            yield
        finally:
            for one in started:
                one.send_signal(signal.SIGTERM)
            for one in started:
                one.wait(60)


def idle(options: argparse.Namespace, seconds: float = 30) -> float:
    with workers(options.pool, 1):
        time.sleep(5)
        before = commits(options.store)
        began = time.perf_counter()
        time.sleep(seconds)
        return (commits(options.store) - before) / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
