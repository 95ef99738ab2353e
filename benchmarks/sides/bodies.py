"""What the tasks of all sides do. They write to the ledger, a file of lines, each in one write."""

from __future__ import annotations

import os
import time


def noop() -> None: ...


def stamp(sent: float) -> None:
    """When it was sent, and started."""
    note("stamp", f"{sent:.6f}")


def work(number: int, seconds: float) -> None:
    note("start", str(number))
    time.sleep(seconds)
    note("end", str(number))


def note(event: str, what: str) -> None:
    line = f"{event} {what} {os.environ.get('BENCH_NAME', '-')} {time.time():.6f}\n"
    ledger = os.open(os.environ["BENCH_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(ledger, line.encode())
    finally:
        os.close(ledger)
