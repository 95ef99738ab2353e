"""Wakes an event loop, from its own thread or another: a pipe that the loop watches."""

from __future__ import annotations

import os


class Bell:
    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        for end in (self._reader, self._writer):
            os.set_blocking(end, False)

    def fileno(self) -> int:
        return self._reader

    def ring(self) -> None:
        try:
            os.write(self._writer, b"\0")
        except OSError:
            pass  # full: it rings already

    def quiet(self) -> None:
        try:
            os.read(self._reader, 4096)
        except BlockingIOError:
            pass

    def close(self) -> None:
        os.close(self._reader)
        os.close(self._writer)
