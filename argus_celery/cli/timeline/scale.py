"""The time axis: instants to places between 0 and 1. Long idle stretches between work are cut short."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from argus_celery.cli.timeline.words import clock

CUT_ABOVE = 0.2
"""A stretch in which nothing ran is cut if it takes a greater share than this of what is left."""
CUTS = 8
CUT_TO = 0.03
_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
STEPS = [
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(n * _SECOND for n in (1, 2, 5, 10, 15, 30)),
    *(n * _MINUTE for n in (1, 2, 5, 10, 15, 30)),
    *(n * _HOUR for n in (1, 2, 3, 6, 12)),
    *(n * _DAY for n in (1, 2, 7, 14, 30, 90, 365)),
]


@dataclass(frozen=True, slots=True)
class Tick:
    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Scale:
    """``pieces`` are the stretches of time that are drawn, in order; between two of them time is cut."""

    pieces: tuple[tuple[int, int], ...]

    @property
    def start(self) -> int:
        return self.pieces[0][0]

    @property
    def end(self) -> int:
        return self.pieces[-1][1]

    @property
    def gap(self) -> float:
        """The width of a cut in (drawn) milliseconds."""
        return self._drawn * CUT_TO

    @property
    def _drawn(self) -> int:
        return sum(end - start for start, end in self.pieces)

    def at(self, instant: int) -> float:
        """Instants inside a cut lie at its end."""
        passed = 0.0
        for start, end in self.pieces:
            if instant <= end:
                passed += max(instant - start, 0)
                break
            passed += end - start + self.gap
        return passed / (self._drawn + self.gap * (len(self.pieces) - 1))

    @property
    def cuts(self) -> list[tuple[float, float, int]]:
        """Where time is cut: from, to, and how many milliseconds are left out."""
        return [(self.at(one[1]), self.at(other[0]), other[0] - one[1]) for one, other in pairwise(self.pieces)]

    def ticks(self, most: int) -> list[Tick]:
        """At round instants of local time, at most about so many."""
        step = next((step for step in STEPS if self._drawn / step <= max(most, 1)), STEPS[-1])
        ticks = []
        for start, end in self.pieces:
            shift = time.localtime(start / 1000).tm_gmtoff * 1000
            first = -(-(start + shift) // step) * step - shift
            ticks += [Tick(self.at(instant), clock(instant, step)) for instant in range(first, end + 1, step)]
        return ticks


def scale(busy: Iterable[tuple[int, int]]) -> Scale:
    """The scale of these stretches of work."""
    pieces = _merged(busy)
    start, end = (pieces[0][0], pieces[-1][1]) if pieces else (0, 0)
    left = max(end - start, 1)
    idle = sorted(((other[0] - one[1], one[1], other[0]) for one, other in pairwise(pieces)), reverse=True)
    cuts = []
    for length, begins, ends in idle[:CUTS]:
        if length < CUT_ABOVE * left or length < _SECOND:
            break
        cuts.append((begins, ends))
        left = max(left - length, 1)
    bounds = [start, *(bound for cut in sorted(cuts) for bound in cut), max(end, start + 1)]
    return Scale(tuple(zip(bounds[::2], bounds[1::2], strict=True)))


def _merged(stretches: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(stretches):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
