"""Which worker started which module when: one line each, written first, so that a kill cannot hide it."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Start:
    at: float
    """Seconds of the machine's monotonic clock, which its processes share."""
    worker: int
    """Process id of the worker whose child this was."""
    path: str


def note(file: Path, path: str) -> None:
    line = f"{time.monotonic():.4f} {os.getppid()} {path}\n"
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def read(file: Path) -> list[Start]:
    if not file.exists():
        return []
    return [_start(line) for line in file.read_text().splitlines()]


def _start(line: str) -> Start:
    at, worker, path = line.split(" ", 2)
    return Start(float(at), int(worker), path)


def cut_off(starts: Iterable[Start], worker: int, recorded: Collection[str]) -> set[str]:
    """What this worker has started and nobody has recorded."""
    return {start.path for start in starts if start.worker == worker} - set(recorded)


def started_again(starts: Iterable[Start], paths: Collection[str], after: float) -> float | None:
    """Seconds until the last of these was started again; None if one never was."""
    again: dict[str, float] = {}
    for start in starts:
        if start.path in paths and start.at > after:
            again.setdefault(start.path, start.at - after)
    return max(again.values()) if paths and len(again) == len(paths) else None


def ran_twice(starts: Iterable[Start]) -> int:
    return sum(count > 1 for count in Counter(start.path for start in starts).values())
