"""Bars that are too narrow to be seen one by one are drawn together, in cells of some pixels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from argus_celery.cli.timeline.lanes import Bar
from argus_celery.cli.timeline.looks import LOOKS
from argus_celery.cli.timeline.scale import Scale
from argus_celery.cli.timeline.words import counted

NARROW, NARROW_OF_MANY = 3.0, 10.0
"""Pixels below which a bar shares a cell with its neighbours, and where there are many."""
MANY = 2_000
CELL = 8


@dataclass(frozen=True, slots=True)
class Cell:
    """The narrow bars of one track that reach into the same few pixels, and what share of these they fill."""

    at: int
    bars: tuple[Bar, ...]
    busy: float

    @property
    def most(self) -> str:
        return Counter(bar.kind for bar in self.bars).most_common(1)[0][0]

    @property
    def worst(self) -> Bar:
        return max(self.bars, key=lambda bar: LOOKS[bar.kind].rank)

    @property
    def told(self) -> str:
        counts = Counter(bar.kind for bar in self.bars)
        kinds = sorted(counts, key=lambda kind: -LOOKS[kind].rank)
        return f"{counted(len(self.bars), 'attempt')}: " + ", ".join(f"{counts[kind]} {kind}" for kind in kinds)


def parted(track: Iterable[Bar], scale: Scale, width: float, *, many: bool) -> tuple[list[Bar], list[Cell]]:
    """The bars that stand alone, and the cells of the others."""
    alone: list[Bar] = []
    cells: dict[int, list[tuple[Bar, float]]] = {}
    for bar in track:
        start, end = scale.at(bar.start) * width, scale.at(bar.end) * width
        if end - start >= (NARROW_OF_MANY if many else NARROW):
            alone.append(bar)
            continue
        for at in range(int(start // CELL), int(end // CELL) + 1):
            cells.setdefault(at, []).append((bar, min(end, (at + 1) * CELL) - max(start, at * CELL)))
    crowded = {id(bar) for there in cells.values() if len(there) > 1 for bar, _ in there}
    alone += {id(bar): bar for there in cells.values() for bar, _ in there if id(bar) not in crowded}.values()
    made = []
    for at, there in sorted(cells.items()):
        bars = tuple(bar for bar, _ in there if id(bar) in crowded)
        if bars:
            made.append(Cell(at, bars, min(sum(share for _, share in there) / CELL, 1)))
    return alone, made
