"""Tables for a terminal of any width, one line for each row."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from typing import Any

import click

GAP = "  "
LEAST = 5
"""Letters that are left of a column that was made narrower."""

CUT = {"name", "key", "project", "queue", "by", "detail", "error", "why", "worker", "args", "host"}
"""Columns that may lose letters. The others are copied, or short."""

_RANDOM = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

STYLES: dict[str, dict[str, Any]] = {
    "running": {"fg": "cyan"},
    "succeeded": {"fg": "green"},
    "completed": {"fg": "green"},
    "failed": {"fg": "red"},
    "dead": {"fg": "red", "bold": True},
    "killed": {"fg": "red", "bold": True},
    "lost": {"fg": "magenta", "bold": True},
    "cancelled": {"fg": "yellow"},
    "expired": {"fg": "yellow"},
}


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, under: str | None = None) -> None:
    """Print rows under bold headings; numbers stand right, and a column without any content is left out.

    On a terminal it fits the width: the column ``under`` goes below its row, ids are told by their beginning, and names
    lose letters in their middle.
    Without one, what reads this wants whole cells and gets them.
    """
    kept = [at for at, _ in enumerate(columns) if any(row[at] not in (None, "") for row in rows)]
    heads = [columns[at] for at in kept]
    cells = [["" if row[at] is None else printable(str(row[at])) for at in kept] for row in rows]
    right = [all(row[at] is None or isinstance(row[at], int) for row in rows) for at in kept]
    most = width_of_terminal()
    notes: list[str] = []
    if under in heads and _total(_widths(heads, cells)) > most:
        at = heads.index(under)
        notes = [line.pop(at) for line in cells]
        del heads[at], right[at]
    if "task" in heads and _total(_widths(heads, cells)) > most:
        at = heads.index("task")
        for line, short in zip(cells, abbreviated([line[at] for line in cells]), strict=True):
            line[at] = short
    widths = _narrowed(heads, _widths(heads, cells), most)
    echo(_line(heads, widths, right), bold=True)
    for number, line in enumerate(cells):
        echo(_line(line, widths, right, style=True))
        if notes and notes[number]:
            echo(f"    {_shortened(notes[number], most - 4, at_end=True)}", dim=True)


def abbreviated(ids: Sequence[str]) -> list[str]:
    """The beginnings of random ids that tell them apart; those that somebody has chosen stay whole."""
    for length in (8, 13, 18):
        short = [one[:length] if _RANDOM.fullmatch(one) else one for one in ids]
        if len(set(short)) == len(set(ids)):
            return short
    return list(ids)


def width_of_terminal() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 10_000


def echo(text: str, **style: Any) -> None:
    """Print a line in a style, if ``celery --no-color`` was not asked for."""
    click.echo(styled(text, **style))


def styled(text: str, **style: Any) -> str:
    ctx = click.get_current_context(silent=True)
    no_color = ctx is not None and getattr(ctx.find_object(object), "no_color", False)
    return text if no_color else click.style(text, **style)


def printable(text: str) -> str:
    """One line for a terminal: names and errors are others' text, and may hold anything."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def _widths(heads: Sequence[str], cells: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(_len, column)) for column in zip(heads, *cells, strict=True)]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _narrowed(heads: Sequence[str], widths: list[int], most: int) -> list[int]:
    """Letter by letter from the widest that may be cut."""
    narrow = list(widths)
    while _total(narrow) > most:
        able = [at for at, head in enumerate(heads) if head in CUT and narrow[at] > max(LEAST, len(head))]
        if not able:
            break
        narrow[max(able, key=narrow.__getitem__)] -= 1
    return narrow


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool], *, style: bool = False) -> str:
    placed = [_placed(*each, style=style) for each in zip(cells, widths, right, strict=True)]
    return GAP.join(placed).rstrip()


def _placed(cell: str, width: int, right: bool, *, style: bool) -> str:
    short = _shortened(cell, width)
    blank = " " * (width - _len(short))
    shown = styled(short, **STYLES[cell]) if style and cell in STYLES else short
    return blank + shown if right else shown + blank


def _shortened(text: str, width: int, *, at_end: bool = False) -> str:
    """Without its middle: names differ at their ends."""
    if _len(text) <= width:
        return text
    tail = 0 if at_end else width // 2
    head = width - 1 - tail
    return _first(text, head) + "…" + _first(text[::-1], tail)[::-1]


def _first(text: str, width: int) -> str:
    while _len(text) > width:
        text = text[: max(0, min(len(text) - 1, width))]
    return text


def _len(text: str) -> int:
    """In columns of the terminal: some letters take two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
