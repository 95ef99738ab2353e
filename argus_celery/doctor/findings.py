"""What a check finds, with what helps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Level(StrEnum):
    OK = "ok"
    UNKNOWN = "unknown"
    """It could not be checked."""
    WARNING = "warning"
    """It works, and will cost time, results or patience."""
    ERROR = "error"
    """It does not work, or runs are taken from workers that live."""


@dataclass(frozen=True, slots=True)
class Finding:
    level: Level
    check: str
    what: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """``look`` is given the app's Argus and returns findings; whatever it raises is told as not checked."""

    name: str
    look: Callable[[Any], Iterable[Finding]]
    needs_store: bool = True
    """It reads the store, and so is left out where that would make it or change its tables."""

    def ok(self, what: str) -> Finding:
        return Finding(Level.OK, self.name, what)
