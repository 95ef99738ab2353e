"""The timeline as one page: the drawing to look into, and in words what was handed over or did not end well.

It loads nothing, and its policy lets no script run but its own: names come from outside.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from html import escape
from importlib import resources
from string import Template
from typing import Any

from argus_celery.cli.tables import printable
from argus_celery.cli.timeline.cells import MANY
from argus_celery.cli.timeline.lanes import Bar, Chart
from argus_celery.cli.timeline.looks import LOOKS, variables
from argus_celery.cli.timeline.scale import CUT_TO, STEPS
from argus_celery.cli.timeline.shapes import swatch
from argus_celery.cli.timeline.svg import svg
from argus_celery.cli.timeline.words import clock, counted, duration, last_line, shortened

_NO_DRAWING = "<p>The drawing needs scripts; <code>--svg</code> writes it as a picture.</p>"
MOST_ROWS = 300
"""Of a table; the worst stand first."""


def page(chart: Chart) -> str:
    script = _file("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    project = escape(printable(chart.timeline.project))
    facts = escape(" · ".join(chart.facts))
    zone = time.strftime("%z", time.localtime(chart.scale.start / 1000))
    return Template(_file("page.html")).substitute(
        policy=f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'",
        project=project,
        style=variables() + _file("page.css"),
        facts=facts,
        left_out='<p class="note">These are the newest attempts; older ones are left out (<code>--limit</code>).</p>'
        if chart.timeline.earlier
        else "",
        legend="".join(_legend(chart)),
        described=f"{project}: {facts}. What was handed over and what did not end well stands in the tables below.",
        zone=f"UTC{zone[:3]}:{zone[3:]}",
        drawing=svg(chart) if len(chart.timeline.attempts) <= MANY else _NO_DRAWING,
        tables="".join(_tables(chart)),
        data=_embedded(_data(chart)),
        script=script,
    )


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _legend(chart: Chart) -> Iterator[str]:
    for kind, look in LOOKS.items():
        if kind in chart.counts:
            yield (
                f'<button type="button" data-kind="{kind}" aria-pressed="false" title="{look.means}">'
                f"{swatch(kind)}{chart.counts[kind]:,} {kind}</button>"
            )


# --- in words ----------------------------------------------------------------------------------------------------


def _tables(chart: Chart) -> Iterator[str]:
    at = {id(bar): number for number, bar in enumerate(chart.bars)}
    labels = [shortened(lane.label, 40) for lane in chart.lanes]
    handed = sorted(chart.hand_overs, key=lambda one: -one.took)
    rows = [
        [
            clock(one.before.known, 1),
            _pick(one.before, at),
            one.before.kind,
            labels[one.before.lane],
            labels[one.after.lane],
            duration(one.took),
            last_line(one.before.attempt.detail or ""),
        ]
        for one in handed
    ]
    columns = ["last sign of life", "task", "", "by", "taken over by", "after", "why"]
    yield from _table("Hand-overs, the longest first", columns, rows)
    bad = [bar for bar in chart.bars if LOOKS[bar.kind].rank >= LOOKS["refused"].rank]
    taken = {id(one.before) for one in handed}
    bad = sorted((bar for bar in bad if id(bar) not in taken), key=lambda bar: (-LOOKS[bar.kind].rank, bar.start))
    rows = [
        [clock(bar.known, 1), _pick(bar, at), bar.kind, labels[bar.lane], last_line(bar.attempt.detail or "")]
        for bar in bad
    ]
    yield from _table("Other attempts that did not end well", ["when", "task", "", "by", "why"], rows)


def _pick(bar: Bar, at: dict[int, int]) -> tuple[str, int]:
    return f"{shortened(printable(bar.attempt.name), 60)} {printable(bar.attempt.task_id)[:8]}", at[id(bar)]


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Iterator[str]:
    if not rows:
        return
    head = "".join(f'<th scope="col">{column or "ended"}</th>' for column in columns)
    yield f'<section><h2>{title}</h2><div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>'
    for row in rows[:MOST_ROWS]:
        yield "<tr>" + "".join(_cell(cell, column) for cell, column in zip(row, columns, strict=True)) + "</tr>"
    yield "</tbody></table></div>"
    if len(rows) > MOST_ROWS:
        yield f'<p class="facts">and {counted(len(rows) - MOST_ROWS, "more")}</p>'
    yield "</section>"


def _cell(cell: Any, column: str) -> str:
    if isinstance(cell, tuple):
        name, bar = cell
        return f'<td><button type="button" data-bar="{bar}">{escape(name)}</button></td>'
    return f'<td class="{ {"why": "why", "after": "took", "": "took"}.get(column, "at") }">{escape(cell)}</td>'


# --- for the script ----------------------------------------------------------------------------------------------


def _data(chart: Chart) -> dict[str, Any]:
    """Every text once, and a row of numbers for each attempt. Times count from the start."""
    start, kinds = chart.scale.start, list(LOOKS)
    names, tasks, details = _Numbered(), _Numbered(), _Numbered()
    at: dict[int, int] = {}
    bars: list[list[int]] = []
    for bar in chart.bars:
        at[id(bar)] = len(bars)
        one = bar.attempt
        key = None if one.key is None else printable(one.key)
        task = tasks.number((printable(one.task_id), names.number(printable(one.name)), key))
        detail = details.number(last_line(one.detail)) if one.detail else -1
        times = (bar.start - start, bar.known - start, bar.end - start)
        bars.append([task, one.token, bar.lane, bar.track, *times, kinds.index(bar.kind), detail])
    return {
        "start": start,
        "zone": time.localtime(start / 1000).tm_gmtoff // 60,
        "pieces": [[begins - start, ends - start] for begins, ends in chart.scale.pieces],
        "gap": CUT_TO,
        "steps": STEPS,
        "kinds": kinds,
        "looks": {kind: {"shape": look.shape, "mark": look.mark, "rank": look.rank} for kind, look in LOOKS.items()},
        "lanes": [{"label": lane.label, "tracks": len(lane.tracks)} for lane in chart.lanes],
        "names": list(names),
        "tasks": list(tasks),
        "details": list(details),
        "bars": bars,
        "links": [[at[id(one.before)], at[id(one.after)]] for one in chart.hand_overs],
    }


class _Numbered(dict[Any, int]):
    def number(self, value: Any) -> int:
        return self.setdefault(value, len(self))


def _embedded(data: dict[str, Any]) -> str:
    """JSON that no HTML parser takes for the end of its element, or the start of another."""
    text = json.dumps(data, separators=(",", ":"))  # ASCII only
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
