"""The argus:// broker beside Redis in the same run: how fast two workers drain it, and how soon a message starts.

    ./dev bench transport --redis redis://…/9 [--write] [--broker argus+postgresql+psycopg://…] [--messages 5000]

Plain Celery, no durable tasks: this is the transport alone. The brokers must be empty; SQLite is a file made for the
run. Read the ratios: absolute rates say little on a shared machine.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from celery import Celery

import argus_celery  # noqa: F401 - registers argus://
from benchmarks.harness.report import Report, parser, quantile

WORKERS, CHILDREN = 2, 2
LEDGER = Path(os.environ.get("BENCH_LEDGER", os.devnull))

app = Celery("transport", broker=os.environ.get("BENCH_BROKER", "argus://"))
app.conf.update(task_ignore_result=True, worker_hijack_root_logger=False)


@app.task(name="transport.noop")
def noop(sent: float) -> None:
    with LEDGER.open("a") as ledger:
        ledger.write(f"{sent} {time.time()}\n")


@dataclass(frozen=True)
class Figures:
    name: str
    put: float
    drain: float
    p50: float
    p99: float


def main() -> None:
    options = arguments()
    report = Report("transport", options.write)
    report.say(f"{options.messages} no-op messages, {WORKERS} workers x {CHILDREN}; {options.pings} to idle workers")
    rows = [["broker", "put/s", "drained/s", "÷ Redis", "p50 ms", "÷ Redis", "p99 ms"]]
    for _ in range(options.rounds):
        base = measure(options.redis, options)
        others = [measure(broker, options) for broker in options.broker or ["argus://"]]
        rows += [shown(figures, base) for figures in (base, *others)]
    report.table(rows)
    report.close()


def arguments() -> argparse.Namespace:
    made = parser(__doc__)
    made.add_argument("--redis", default="redis://localhost/9")
    made.add_argument("--broker", action="append", help="argus:// by default; may be given again")
    made.add_argument("--messages", type=int, default=5000)
    made.add_argument("--pings", type=int, default=100)
    made.add_argument("--rounds", type=int, default=1)
    return made.parse_args()


def shown(figures: Figures, base: Figures) -> list[str]:
    row = [figures.name, f"{figures.put:.0f}", f"{figures.drain:.0f}", f"{figures.drain / base.drain:.2f}"]
    return [*row, f"{figures.p50:.1f}", f"{figures.p50 / base.p50:.2f}", f"{figures.p99:.1f}"]


def measure(broker: str, options: argparse.Namespace) -> Figures:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        url = f"argus://{folder / 'broker.db'}" if broker == "argus://" else broker
        with Celery("producer", broker=url) as producer:
            put = put_all(producer, options.messages)
            with workers(url, folder) as ledger:
                moments = sorted(at for _, at in waited_for(ledger, options.messages))
                latencies = pinged(producer, ledger, options)
        drain = (len(moments) - 1) / (moments[-1] - moments[0])
        return Figures(broker.split("://")[0], put, drain, quantile(latencies, 0.5), quantile(latencies, 0.99))


def put_all(producer: Celery, count: int) -> float:
    began = time.monotonic()
    for _ in range(count):
        send(producer)
    return count / (time.monotonic() - began)


def send(producer: Celery) -> None:
    producer.send_task("transport.noop", (time.time(),), ignore_result=True)


@contextmanager
def workers(url: str, folder: Path) -> Iterator[Path]:
    ledger = folder / "ledger"
    ledger.touch()
    environment = os.environ | {
        "BENCH_BROKER": url,
        "BENCH_LEDGER": str(ledger),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        "benchmarks.transport",
        "worker",
        "-c",
        str(CHILDREN),
        "-l",
        "ERROR",
    ]
    processes = [
        subprocess.Popen(
            [*command, "-n", f"w{number}@bench"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for number in range(WORKERS)
    ]
    try:
        yield ledger
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            process.wait(30)


def waited_for(ledger: Path, count: int) -> list[tuple[float, float]]:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        lines = ledger.read_text().splitlines()
        if len(lines) >= count:
            return [(float(sent), float(at)) for sent, at in (line.split() for line in lines)]
        time.sleep(0.05)
    raise SystemExit(f"only {len(lines)} of {count} messages came in 120 s")


def pinged(producer: Celery, ledger: Path, options: argparse.Namespace) -> list[float]:
    for number in range(options.pings):
        send(producer)
        waited_for(ledger, options.messages + number + 1)
    return [1000 * (at - sent) for sent, at in waited_for(ledger, options.messages + options.pings)[options.messages :]]


if __name__ == "__main__":
    main()
