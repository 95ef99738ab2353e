"""The timeline as one SVG that needs nothing else: no script, no font, no network."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from argus_celery.cli.tables import printable
from argus_celery.cli.timeline.cells import CELL, MANY, Cell, parted
from argus_celery.cli.timeline.lanes import Bar, Chart, Lane
from argus_celery.cli.timeline.looks import LOOKS, styles
from argus_celery.cli.timeline.shapes import shape, sign
from argus_celery.cli.timeline.words import duration, shortened, told

WIDTH = 1200
LABEL = 170
RIGHT = 24
HEAD = 112
MOST_LINKS, MANY_LINKS = 400, 40
MOST_SIGNS = 600

_LAID_OUT = """
text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
.name{font-size:18px;font-weight:600}
.lane:nth-of-type(even) .floor{opacity:.55}
.sign{fill:none;stroke-width:1.8;stroke-linecap:round;stroke-linejoin:round}
.halo{fill:none;stroke-width:5;stroke-linecap:round;stroke-linejoin:round}
.link{fill:none;stroke-width:1.4;opacity:.75}.many .link{opacity:.5}.many .released-link{opacity:.35}
.hollow{fill-opacity:.14;stroke-width:1.2}
"""


def svg(chart: Chart) -> str:
    return "\n".join(_Drawing(chart).lines()) + "\n"


class _Drawing:
    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        self.plot = WIDTH - LABEL - RIGHT
        self.many = len(chart.timeline.attempts) > MANY
        tracks = sum(len(lane.tracks) for lane in chart.lanes)
        self.step = 14 if tracks <= 60 else 9 if tracks <= 160 else 6
        self.thick = self.step - (3 if self.step > 9 else 2)
        self.tops: list[float] = []
        at = float(HEAD)
        for lane in chart.lanes:
            self.tops.append(at)
            at += self._height(lane)
        self.bottom = at

    def lines(self) -> Iterator[str]:
        timeline = self.chart.timeline
        height = self.bottom + 16
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}"'
            f' height="{height:g}" role="img" aria-labelledby="argus-title argus-desc">'
        )
        yield f'<title id="argus-title">Timeline of {_text(timeline.project)}</title>'
        yield f'<desc id="argus-desc">{_text("; ".join(self.chart.facts))}</desc>'
        yield f"<style>{styles()}{_LAID_OUT}</style>"
        yield _HATCH
        yield f'<rect class="paper" width="{WIDTH}" height="{height:g}"/>'
        yield from self._head()
        if self.chart.lanes:
            yield from self._axis()
        for at, lane in enumerate(self.chart.lanes):
            yield from self._lane(lane, self.tops[at])
        yield from self._links()
        yield from self._signs()
        yield "</svg>"

    # --- around ----------------------------------------------------------------------------------------------------

    def _head(self) -> Iterator[str]:
        timeline = self.chart.timeline
        yield f'<text class="ink name" x="16" y="30">{_text(shortened(timeline.project, 90))}</text>'
        yield f'<text class="dim" x="16" y="50">{_text(" · ".join(self.chart.facts))}</text>'
        x, counts = 16, self.chart.counts
        for kind, look in LOOKS.items():
            if kind in counts:
                word = f"{counts[kind]:,} {kind}"
                yield f"<g><title>{look.means}</title>{shape(kind, x, x + 20, x + 28, 62, 11)}"
                if look.mark:
                    yield sign(kind, x + 20 if look.shape == "broken" else x + 29, 67.5)
                yield f'<text class="ink" x="{x + 38}" y="72">{word}</text></g>'
                x += 38 + 7 * len(word) + 18

    def _axis(self) -> Iterator[str]:
        base, taken = HEAD - 8, -1.0
        for begins, ends, length in self.chart.scale.cuts:
            x, width = self._x(begins), (ends - begins) * self.plot
            yield f'<rect class="cut" x="{x:.1f}" y="{base}" width="{width:.1f}" height="{self.bottom - base:g}">'
            yield f"<title>{duration(length)} in which nothing ran are left out</title></rect>"
            yield f'<text class="dim" text-anchor="middle" x="{x + width / 2:.1f}" y="{base - 6}">'
            yield f"+{duration(length)}</text>"
        holes = [(self._x(begins) - 70, self._x(ends) + 40) for begins, ends, _ in self.chart.scale.cuts]
        for tick in self.chart.scale.ticks(self.plot // 90):
            x = self._x(tick.at)
            yield f'<path class="grid" d="M{x:.1f} {base}V{self.bottom:g}"/>'
            if x >= taken and x < WIDTH - 50 and not any(begin < x < end for begin, end in holes):
                yield f'<text class="dim" x="{x - 1:.1f}" y="{base - 6}">{tick.label}</text>'
                taken = x + 66
        yield f'<path class="rule" d="M{LABEL} {base}H{WIDTH - RIGHT}"/>'

    # --- lanes -----------------------------------------------------------------------------------------------------

    def _lane(self, lane: Lane, top: float) -> Iterator[str]:
        height = self._height(lane) - 4
        yield '<g class="lane">'
        yield f'<rect class="floor" x="{LABEL}" y="{top:g}" width="{self.plot}" height="{height:g}" rx="2"/>'
        yield (
            f'<text class="ink" x="{LABEL - 10}" y="{top + min(height / 2, 40) + 4:g}" text-anchor="end">'
            f"<title>{_text(lane.label)}, {_text(lane.holder)}</title>{_text(shortened(lane.label, 24))}</text>"
        )
        for at, track in enumerate(lane.tracks):
            y = top + 4 + at * self.step
            alone, cells = parted(track, self.chart.scale, self.plot, many=self.many)
            for cell in cells:
                yield self._cell(cell, y)
            for bar in sorted(alone, key=lambda bar: LOOKS[bar.kind].rank):
                yield self._bar(bar, y)
        yield "</g>"

    def _bar(self, bar: Bar, y: float) -> str:
        start, known, end = (self._x(self.chart.scale.at(at)) for at in (bar.start, bar.known, bar.end))
        drawn = shape(bar.kind, start, known, end, y, self.thick)
        lines = told(bar.attempt, self.chart.timeline.now).split("\n")
        # Thousands of long titles would be most of the file.
        title = "\n".join(lines[:2] if self.many and bar.kind == "succeeded" else lines)
        return f"<g><title>{_text(title)}</title>{drawn}</g>"

    def _cell(self, cell: Cell, y: float) -> str:
        """As dense as it is busy; a notch where some did not end well."""
        x = LABEL + cell.at * CELL
        opacity = f"{0.3 + 0.7 * cell.busy:.2g}"
        body = f'<rect class="{cell.most}" x="{x}" y="{y:g}" width="{CELL}" height="{self.thick}" opacity="{opacity}"'
        told = f"<title>{cell.told}</title>"
        if cell.worst.kind == cell.most:
            return f"{body}>{told}</rect>"
        notch = (
            f'<rect class="{cell.worst.kind}" x="{x}" y="{y:g}" width="{CELL}" height="{math.ceil(self.thick / 3)}"/>'
        )
        return f"<g>{told}{body}/>{notch}</g>"

    # --- above -----------------------------------------------------------------------------------------------------

    def _links(self) -> Iterator[str]:
        """Several that would lie on each other are one."""
        drawn: set[tuple[int, ...]] = set()
        dense = len(self.chart.hand_overs) > MANY_LINKS
        yield '<g class="many">' if dense else "<g>"
        for one in self.chart.hand_overs:
            ends = (self._end(one.before, one.before.known), self._end(one.after, one.after.start))
            place = tuple(round(number / 5) for end in ends for number in end)
            if place in drawn or len(drawn) >= MOST_LINKS:
                continue
            drawn.add(place)
            (x, y), (to_x, to_y) = ends
            name = _text(one.before.attempt.name)
            bend = max(min(abs(to_x - x) / 2, 60), 12)
            yield (
                f'<path class="link {one.before.kind}-link" marker-end="url(#argus-{one.before.kind})"'
                f' d="M{x:.1f} {y:g}C{x + bend:.1f} {y:g} {to_x - bend:.1f} {to_y:g} {to_x:.1f} {to_y:g}">'
                f"<title>{name}: taken over after {duration(one.took)}</title></path>"
            )
        yield "</g>"

    def _signs(self) -> Iterator[str]:
        """The worst first; where there are too many, those of the others are left out."""
        drawn: set[tuple[int, int, int]] = set()
        for bar in sorted(self.chart.bars, key=lambda bar: -LOOKS[bar.kind].rank):
            if not LOOKS[bar.kind].mark or len(drawn) >= MOST_SIGNS:
                continue
            x, y = self._end(bar, bar.known)
            place = (bar.lane, bar.track, round(x / 9))
            if place not in drawn:
                drawn.add(place)
                size = 0.9 if self.step > 9 else 0.6
                yield sign(bar.kind, x if LOOKS[bar.kind].shape == "broken" else x + 5 * size, y, size)

    # --- places ----------------------------------------------------------------------------------------------------

    def _height(self, lane: Lane) -> float:
        return max(len(lane.tracks) * self.step, 18) + 10

    def _x(self, place: float) -> float:
        return LABEL + place * self.plot

    def _end(self, bar: Bar, instant: int) -> tuple[float, float]:
        return self._x(self.chart.scale.at(instant)), self.tops[bar.lane] + 4 + bar.track * self.step + self.thick / 2


def _text(text: str) -> str:
    """Lines stay lines; what else is no text is shown as escapes."""
    return escape("\n".join(printable(line) for line in text.split("\n")))


_ARROW = '<marker id="argus-{0}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
_HATCH = (
    '<defs><pattern id="argus-silent" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect class="dim" width="1.6" height="5"/></pattern>'
    + "".join(
        _ARROW.format(kind) + f'<path class="{kind}" d="M0 0L8 4L0 8z"/></marker>'
        for kind in ("killed", "lost", "released")
    )
    + "</defs>"
)
