"""A clock that a test moves: it is added to the database's, in this process and in those it forks."""

from __future__ import annotations

import mmap
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from argus_celery.store.engine import Store

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement


class Clock:
    """How far the store's clock is ahead of the real one. It never goes back, as no database's may."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, 8)  # a fork shares it

    @property
    def shift(self) -> int:
        """Milliseconds."""
        return int.from_bytes(self._shared[:8], "little")

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Move on. Whatever runs meanwhile seems to have stood still for so long: beyond its lease it is lost."""
        self.advance_by(timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds))

    def advance_by(self, time: timedelta) -> None:
        if time < timedelta():
            raise ValueError(f"the store's clock cannot go back ({time}): leases and due instants would come undone")
        self._shared[:8] = (self.shift + time // timedelta(milliseconds=1)).to_bytes(8, "little")

    def reset(self) -> None:
        """For an empty store."""
        self._shared[:8] = bytes(8)


class ClockedStore(Store):
    """A store whose clock a test moves."""

    def __init__(self, *args: Any, clock: Clock, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._clock = clock

    @property
    def now(self) -> ColumnElement[int]:
        return self.dialect.now() + self._clock.shift if self._clock.shift else self.dialect.now()
