"""The command line that all sides share: ``python -m benchmarks.sides.NAME COMMAND …``; figures are printed as JSON.

Needs nothing but the standard library, as a peer's Python has no Argus.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

WARM = 5
"""Tasks before the measured ones, so that connections are open."""
PIECE = 500
"""Tasks in one call of a bulk."""


class Side(Protocol):
    def prepare(self) -> None:
        """Make tables and queues."""

    def one(self, body: str, *arguments: Any) -> None:
        """Enqueue one task."""

    def bulk(self, count: int) -> None:
        """Enqueue so many no-ops in the fastest way that the side has."""

    def worker(self, name: str) -> None:
        """Run one until it is told to stop."""


def main(side: Side) -> None:
    command, *rest = sys.argv[1:]
    {
        "prepare": lambda: side.prepare(),
        "one": lambda: _timed(side, lambda count: _repeat(count, lambda: side.one("noop")), int(rest[0])),
        "bulk": lambda: _timed(side, side.bulk, int(rest[0])),
        "trickle": lambda: _trickle(side, int(rest[0]), float(rest[1])),
        "work": lambda: _work(side, int(rest[0]), float(rest[1])),
        "worker": lambda: side.worker(rest[0]),
    }[command]()


def _timed(side: Side, enqueue: Callable[[int], None], count: int) -> None:
    _repeat(WARM, lambda: side.one("noop"))
    began, used = time.perf_counter(), time.process_time()
    enqueue(count)
    seconds, used = time.perf_counter() - began, time.process_time() - used
    print(json.dumps({"rate": count / seconds, "cpu": used, "sent": count + WARM}))


def _repeat(count: int, call: Callable[[], None]) -> None:
    for _ in range(count):
        call()


def _trickle(side: Side, count: int, rate: float) -> None:
    began = time.perf_counter()
    for number in range(count):
        time.sleep(max(0.0, began + number / rate - time.perf_counter()))
        side.one("stamp", time.time())


def _work(side: Side, count: int, seconds: float) -> None:
    for number in range(count):
        side.one("work", number, seconds)
