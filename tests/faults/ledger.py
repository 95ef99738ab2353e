"""The ledger: one JSON line for each thing that really happened, appended by whoever did it.

It is the only witness for "ran".
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Line:
    event: str
    tag: str
    task_id: str = ""
    pid: int = 0
    time: float = 0.0
    token: int = 0
    attempt: int = 0
    detail: str = ""
    clock: float = 0.0
    """By the clock of this boot, which no fake time moves."""


class Ledger:
    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def note(self, event: str, tag: str, task_id: str = "", token: int = 0, attempt: int = 0, detail: str = "") -> None:
        line = Line(event, tag, task_id, os.getpid(), time.time(), token, attempt, detail, time.monotonic())
        opened = os.open(self.path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)
        try:
            os.write(opened, f"{json.dumps(asdict(line))}\n".encode())
        finally:
            os.close(opened)

    def lines(self, event: str | None = None, tag: str | None = None) -> list[Line]:
        """All of this event (and tag), in the order they were written."""
        try:
            written = self.path.read_text().rpartition("\n")[0].splitlines()
        except FileNotFoundError:
            return []
        lines = [Line(**json.loads(one)) for one in written]
        return [one for one in lines if event in (None, one.event) and tag in (None, one.tag)]

    def wait(self, event: str, tag: str | None = None, *, count: int = 1, within: float) -> list[Line]:
        """The lines of this event, once there are ``count`` of them."""
        what = f"{count} x {event} {tag or ''}"
        return wait_for(lambda: len(found := self.lines(event, tag)) >= count and found, within, what)


def wait_for(fact: Callable[[], T | bool | None], within: float, what: str) -> T:
    """Poll until the fact is there and return it; fails the test when it does not come in time."""
    end = time.monotonic() + within
    while not (found := fact()):
        assert time.monotonic() < end, f"not within {within:.1f} s: {what}"
        time.sleep(0.05)
    return found  # type: ignore[return-value]


def lasting(seconds: float) -> None:
    """The fault lasts this long: the length is the experiment, no fact is waited for."""
    time.sleep(seconds)
