"""Progress: what a run with ``progress_timeout`` has to show of itself, or its lease lapses though its worker lives."""

from __future__ import annotations

import time


class Progress:
    """When a run is to write again that it goes on. Without a timeout, never."""

    def __init__(self, timeout: float | None) -> None:
        self.timeout = timeout
        """Seconds."""
        self._due_at = time.monotonic() + self._rest

    @property
    def _rest(self) -> float:
        """A quarter of the timeout: what is shown within it costs nothing."""
        return float("inf") if self.timeout is None else self.timeout / 4

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self._due_at

    def written(self) -> None:
        self._due_at = time.monotonic() + self._rest
