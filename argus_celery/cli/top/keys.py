"""Keys of a terminal, one at a time, without Enter."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from types import TracebackType
from typing import Any

NAMES = {
    b"\x1b[A": "up",
    b"\x1b[B": "down",
    b"\x1bOA": "up",
    b"\x1bOB": "down",
    b" ": "space",
    b"\x03": "q",
    b"\x04": "q",
}


class Keys:
    """While it is entered, the terminal echoes nothing and gives each key at once; after it, all is as before."""

    def __init__(self, fd: int | None = None) -> None:
        self._fd = sys.stdin.fileno() if fd is None else fd
        self._before: list[Any] = []

    def __enter__(self) -> Keys:
        self._before = termios.tcgetattr(self._fd)
        tty.setcbreak(self._fd)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def read(self, seconds: float) -> str | None:
        """The next key; None if none comes in this time. A terminal that is gone quits."""
        ready, _, _ = select.select([self._fd], [], [], max(0.0, seconds))
        if not ready:
            return None
        pressed = os.read(self._fd, 16)
        return NAMES.get(pressed, pressed[:1].decode("ascii", "replace")) if pressed else "q"
