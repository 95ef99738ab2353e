"""The timeline in a terminal: a lane for each worker, as wide as the window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from argus_celery.cli.tables import printable
from argus_celery.cli.timeline.lanes import Bar, Chart, HandOver, Lane
from argus_celery.cli.timeline.looks import LOOKS
from argus_celery.cli.timeline.words import clock, counted, duration, last_line

MOST_ROWS = 48
"""Tracks that are drawn one by one; with more, each worker is one row that shows how busy it was."""
MOST_TOLD = 12
LABEL = 28
_SIGNS = {"on": "━", "end": "╸", "silent": "╌", "took": "╺", "rule": "─", "tick": "┬", "cut": "⋯", "to": "→"}
_ASCII = {"on": "-", "end": "|", "silent": ".", "took": ">", "rule": "-", "tick": "+", "cut": "~", "to": "->"}
_BUSY = " ▁▂▃▄▅▆▇█"
_ASCII_BUSY = " .:-=+*#@"

Cell = tuple[int, str, str]
"""Rank, character, style: of two that want one place the higher stands."""


def show(console: Console, chart: Chart) -> None:
    _Picture(console, chart).print()


class _Picture:
    def __init__(self, console: Console, chart: Chart) -> None:
        self.console, self.chart = console, chart
        self.plain = not console.encoding.lower().startswith("utf")
        self.signs = _ASCII if self.plain else _SIGNS
        longest = max((len(lane.label) for lane in chart.lanes), default=0)
        self.label = min(longest, LABEL, console.width // 3)
        self.width = max(console.width - self.label - 1, 10)
        self.took_over = {(one.after.lane, one.after.track, one.after.start) for one in chart.hand_overs}

    def print(self) -> None:
        self._title()
        if not self.chart.lanes:
            return
        self._line(Text())
        for row in self._axis():
            self._line(row)
        each = sum(len(lane.tracks) for lane in self.chart.lanes) <= MOST_ROWS
        for lane in self.chart.lanes:
            for row in self._tracks(lane) if each else [self._summed(lane)]:
                self._line(row)
        self._line(Text())
        self._flow(self._legend(), "   ")
        for line in self._told():
            self._line(line)

    def _line(self, text: Text) -> None:
        if self.plain:
            # One character for one: the styles stand by position.
            asked = text.plain.translate(str.maketrans("·–…", "--~"))
            text.plain = asked.encode(self.console.encoding, "replace").decode(self.console.encoding)
        self.console.print(text, no_wrap=True, overflow="crop" if self.plain else "ellipsis")

    def _flow(self, items: Sequence[Text], between: str) -> None:
        """Items side by side, on as many lines as they take."""
        line = Text()
        for item in items:
            if line and len(line) + len(between) + len(item) > self.console.width:
                self._line(line)
                line = Text()
            line.append(between if line else "").append_text(item)
        if line:
            self._line(line)

    def _title(self) -> None:
        timeline, counts = self.chart.timeline, self.chart.counts
        self._line(Text(printable(timeline.project), "bold"))
        self._flow([Text(fact) for fact in self.chart.facts], " · ")
        if timeline.earlier is not None:
            self._line(Text("the newest ones: older ones are left out, --limit takes more", "yellow"))
        worst_first = sorted(counts, key=lambda kind: -LOOKS[kind].rank)
        self._flow([Text(f"{counts[kind]:,} {kind}", LOOKS[kind].style) for kind in worst_first], ", ")

    # --- rows ------------------------------------------------------------------------------------------------------

    def _axis(self) -> Iterator[Text]:
        labels, rule = [" "] * self.width, [self.signs["rule"]] * self.width
        for begins, ends, length in self.chart.scale.cuts:
            for at in range(self._column(begins), self._column(ends) + 1):
                rule[at] = self.signs["cut"]
            self._label(labels, self._column(begins), f"({duration(length)})")
        for tick in self.chart.scale.ticks(self.width // 14):
            if self._label(labels, self._column(tick.at), tick.label):
                rule[self._column(tick.at)] = self.signs["tick"]
        yield Text(" " * (self.label + 1) + "".join(labels).rstrip(), "dim")
        yield Text(" " * (self.label + 1) + "".join(rule), "dim")

    @staticmethod
    def _label(labels: list[str], at: int, text: str) -> bool:
        """Write it there if nothing stands in the way."""
        taken = "".join(labels[max(at - 2, 0) : at + len(text) + 2])
        if taken.strip() or at + len(text) > len(labels):
            return False
        labels[at : at + len(text)] = text
        return True

    def _tracks(self, lane: Lane) -> Iterator[Text]:
        for at, track in enumerate(lane.tracks):
            cells: list[Cell | None] = [None] * self.width
            for bar in track:
                self._paint(cells, bar)
            yield self._row(lane.label if at == 0 else "", cells)

    def _paint(self, cells: list[Cell | None], bar: Bar) -> None:
        look = LOOKS[bar.kind]
        start, known, end = (self._column(self.chart.scale.at(at)) for at in (bar.start, bar.known, bar.end))
        sign = look.ascii if self.plain else look.sign
        for at in range(start, end + 1):
            drawn = (self.signs["on"], look.style) if at <= known else (self.signs["silent"], "dim")
            self._put(cells, at, (look.rank * 2, *drawn))
        if (bar.lane, bar.track, bar.start) in self.took_over and end > start:
            self._put(cells, start, (look.rank * 2, self.signs["took"], look.style))
        if sign:
            self._put(cells, known, (look.rank * 2 + 1, sign, look.style))
        elif end > start:
            self._put(cells, end, (look.rank * 2, self.signs["end"], look.style))

    @staticmethod
    def _put(cells: list[Cell | None], at: int, cell: Cell) -> None:
        there = cells[at]
        if there is None or cell[0] >= there[0]:
            cells[at] = cell

    def _summed(self, lane: Lane) -> Text:
        """How many of its tracks were busy in each column, and what went wrong there."""
        busy, worst = [0.0] * self.width, [None] * self.width  # type: list[float], list[Cell | None]
        for bar in (bar for track in lane.tracks for bar in track):
            start, end = (self.chart.scale.at(at) * self.width for at in (bar.start, bar.end))
            look = LOOKS[bar.kind]
            for at in range(int(start), min(int(end), self.width - 1) + 1):
                busy[at] += min(end, at + 1) - max(start, at)
            if look.rank >= LOOKS["failed"].rank:
                sign = look.ascii if self.plain else look.sign
                self._put(worst, self._column(self.chart.scale.at(bar.known)), (look.rank, sign, look.style))
        levels = _ASCII_BUSY if self.plain else _BUSY
        cells: list[Cell | None] = []
        for at, share in enumerate(busy):
            level = -(-share * (len(levels) - 1) // len(lane.tracks))
            cells.append(worst[at] or (0, levels[min(int(level), len(levels) - 1)], LOOKS["succeeded"].style))
        return self._row(lane.label, cells)

    def _row(self, label: str, cells: Sequence[Cell | None]) -> Text:
        short = label if len(label) <= self.label else label[: self.label - 1] + ("~" if self.plain else "…")
        row = Text(f"{short:<{self.label}} ", no_wrap=True)
        for cell in cells:
            row.append(" ") if cell is None else row.append(cell[1], cell[2])
        row.rstrip()
        return row

    def _column(self, place: float) -> int:
        return min(int(place * self.width), self.width - 1)

    # --- words -----------------------------------------------------------------------------------------------------

    def _legend(self) -> list[Text]:
        shown = [(look, kind) for kind, look in LOOKS.items() if kind in self.chart.counts]
        signs = [
            ((look.ascii if self.plain else look.sign) or self.signs["on"], kind, look.style) for look, kind in shown
        ]
        if any(bar.known < bar.end for bar in self.chart.bars):
            signs.append((self.signs["silent"], "silent until noticed", "dim"))
        if self.chart.hand_overs:
            signs.append((self.signs["took"], "took over", LOOKS["succeeded"].style))
        return [Text(f"{sign} ", style).append(word, "default") for sign, word, style in signs]

    def _told(self) -> Iterator[Text]:
        """The hand-overs in words, the longest first where they are many."""
        found = sorted(self.chart.hand_overs, key=lambda one: -one.took)
        if not found:
            return
        yield Text()
        for one in sorted(found[:MOST_TOLD], key=lambda one: one.after.start):
            yield self._hand_over(one)
        if len(found) > MOST_TOLD:
            yield Text(f"and {counted(len(found) - MOST_TOLD, 'hand-over')} that took less; --html shows all", "dim")

    def _hand_over(self, one: HandOver) -> Text:
        before, after = one.before, one.after
        look, labels = LOOKS[before.kind], [lane.label for lane in self.chart.lanes]
        line = Text(f"{clock(before.known)} ").append(f"{look.ascii if self.plain else look.sign} ", look.style)
        line.append(f"{printable(before.attempt.name)} ", "bold").append(f"{printable(before.attempt.task_id)[:8]} ")
        at = "on" if before.kind == "killed" else "by"
        line.append(f"{before.kind} {at} {labels[before.lane]} {self.signs['to']} {labels[after.lane]} ")
        line.append(f"after {duration(one.took)}")
        if before.attempt.detail:
            line.append(f": {last_line(before.attempt.detail)}", "dim")
        return line
