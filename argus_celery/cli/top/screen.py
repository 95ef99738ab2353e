"""The picture of ``argus top``: what was seen becomes lines that fit the terminal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from argus_celery.cli.common import span
from argus_celery.cli.tables import printable, width_of_terminal
from argus_celery.cli.top.speed import Speed, left_ms
from argus_celery.records import ProjectInfo, TaskState
from argus_celery.store.board import Board, QueueLoad, WorkerLoad
from argus_celery.store.engine import Store

BAR, WIDE = 12, 100
"""Letters of a bar, and from which width of the terminal on there is one."""
FRAME = 8
"""Lines that are no rows: title, sums, three headings, two blanks, the last line."""


KEYS = "q quit  ↑↓ select  p pause  r retry  c cancel  s sort  space freeze  +- pace"


class Sort(StrEnum):
    ALIVE = "most alive"
    FAILED = "most failed"
    SPEED = "fastest"
    NAME = "name"

    @property
    def next(self) -> Sort:
        all_ = list(Sort)
        return all_[(all_.index(self) + 1) % len(all_)]


@dataclass(slots=True)
class View:
    """What the person at the keys has chosen."""

    selected: str | None = None
    sort: Sort = Sort.ALIVE
    frozen: bool = False
    every: float = 2.0
    message: str = ""


def print_once(store: Store, board: Board) -> None:
    import click

    ctx = click.get_current_context(silent=True)
    no_color = ctx is not None and getattr(ctx.find_object(object), "no_color", False)
    width = min(width_of_terminal(), 200)
    console = Console(width=width, no_color=no_color or None, highlight=False)
    console.print(frame(store, board, Speed(), View(every=0), width, height=10_000), end="")


def frame(store: Store, board: Board, speed: Speed, view: View, width: int, height: int) -> Group:
    """As many rows as the height holds: projects give way last."""
    queues, workers = list(board.queues), list(board.workers)
    room = max(3, height - FRAME)
    below = room // 2
    shown_workers = min(len(workers), max(1, below - min(len(queues), below // 2)))
    shown_queues = min(len(queues), max(1, below - shown_workers))
    shown = max(1, room - shown_workers - shown_queues)
    listed = ordered(board.projects, speed, view.sort)
    parts: list[Any] = [
        _title(store, board, view),
        _sums(board, speed),
        _projects(_around(listed, view.selected, shown), len(listed), speed, view, bar=width >= WIDE),
        Text(),
        _queues(queues[:shown_queues], len(queues), board.now),
        Text(),
        _workers(workers[:shown_workers], len(workers), board.now),
    ]
    if view.every:
        parts.append(Text(printable(view.message) or KEYS, style="reverse" if view.message else "dim", no_wrap=True))
    return Group(*parts)


def ordered(projects: Sequence[ProjectInfo], speed: Speed, sort: Sort) -> list[ProjectInfo]:
    by: dict[Sort, Any] = {
        Sort.ALIVE: lambda p: p.ended - p.total,
        Sort.FAILED: lambda p: -_bad(p),
        Sort.SPEED: lambda p: -speed.of.get(p.name, 0.0),
        Sort.NAME: lambda p: p.name,
    }
    return sorted((one for one in projects if not _is_own(one)), key=by[sort])


def _is_own(project: ProjectInfo) -> bool:
    """Where Argus keeps results of other tasks: of no interest to a person unless something goes on in it."""
    return project.name.startswith("argus.") and project.ended == project.total


def _around(projects: list[ProjectInfo], selected: str | None, most: int) -> list[ProjectInfo]:
    """So many of them that the selected one is among them."""
    at = next((number for number, project in enumerate(projects) if project.name == selected), 0)
    start = max(0, min(at - most // 2, len(projects) - most))
    return projects[start : start + most]


def _bad(project: ProjectInfo) -> int:
    return project.counts[TaskState.FAILED] + project.counts[TaskState.DEAD]


def _title(store: Store, board: Board, view: View) -> Text:
    url = store.url.render_as_string(hide_password=True)
    clock = time.strftime("%H:%M:%S", time.localtime(board.now / 1000))
    paced = f"  every {view.every:g} s, {view.sort} first" if view.every else ""
    line = Text(f"argus top  {clock}{paced}", style="bold", no_wrap=True, overflow="ellipsis")
    return line.append("  frozen" if view.frozen else "", style="yellow").append(f"  {url}", style="not bold")


def _sums(board: Board, speed: Speed) -> Text:
    sums = {
        name: sum(getattr(queue, name) for queue in board.queues) for name in ("waiting", "due", "queued", "running")
    }
    line = f"{sums['running']:,} running   {sums['queued']:,} queued   {sums['waiting']:,} waiting, {sums['due']:,} due"
    return Text(line + (f"   {speed.total:,.1f} end a second" if speed.known else ""), no_wrap=True)


def _projects(projects: Sequence[ProjectInfo], of: int, speed: Speed, view: View, *, bar: bool) -> Any:
    if not projects:
        return Text("no project is open or closed: all have ended", style="dim")
    heads = ("#waiting", "#queued", "#running", "#failed") if bar else ("#wait", "#queue", "#run", "#fail")
    made = _table(f"project{_of(projects, of)}", "status", "progress", *heads)
    if speed.known:
        made.add_column("/s", justify="right", no_wrap=True)
        made.add_column("left", no_wrap=True)
    for project in projects:
        counts = project.counts
        live = [counts[state] for state in (TaskState.WAITING, TaskState.QUEUED, TaskState.RUNNING)]
        cells = [_name(project.name), _status(project), _progress(project, bar), *map(_number, live)]
        cells.append(_number(_bad(project), "bold red"))
        if speed.known:
            rate = speed.of.get(project.name, 0.0)
            left = left_ms(project, rate)
            cells += [Text(f"{rate:,.1f}" if rate else ""), Text(span(left) if left is not None else "")]
        made.add_row(*cells, style="reverse" if project.name == view.selected else "")
    return made


def _status(project: ProjectInfo) -> Text:
    return Text("paused", style="yellow") if project.paused else Text(str(project.status))


def _progress(project: ProjectInfo, bar: bool) -> Text:
    if not project.total:
        return Text("no tasks yet", style="dim")
    drawn = _bar(project) if bar else Text()
    return drawn.append(f"{100 * project.ended // project.total:3d} % of {project.total:,}", style="default")


def _bar(project: ProjectInfo) -> Text:
    """What failed is red, and seen however little it is."""
    full = project.ended * BAR // project.total
    red = min(full, -(-_bad(project) * BAR // project.total))
    bar = Text("█" * (full - red), style="green").append("█" * red, style="red")
    return bar.append("░" * (BAR - full), style="dim").append(" ")


def _queues(queues: Sequence[QueueLoad], of: int, now: int) -> Any:
    if not queues:
        return Text("no task waits or runs", style="dim")
    late = any(queue.oldest_due_at is not None for queue in queues)
    made = _table(f"queue{_of(queues, of)}", "#waiting", "#due", "#queued", "#running", *["due for"] * late)
    for queue in queues:
        since = span(now - queue.oldest_due_at) if queue.oldest_due_at is not None else ""
        numbers = map(_number, (queue.waiting, queue.due, queue.queued, queue.running))
        made.add_row(_name(queue.queue), *numbers, *[Text(since)] * late)
    return made


def _workers(workers: Sequence[WorkerLoad], of: int, now: int) -> Any:
    if not workers:
        return Text("no worker is there", style="dim")
    # Celery's own names say the host.
    elsewhere = any(not worker.node.endswith(f"@{worker.host}") for worker in workers)
    made = _table(f"worker{_of(workers, of)}", "#pid", "#running", "up", "seen", *["host"] * elsewhere)
    for worker in workers:
        died = Text("died", style="bold red")
        seen = died if worker.died else Text(f"{span(now - worker.seen_at)} ago")
        cells = [Text(str(worker.pid)), _number(worker.running), Text(span(now - worker.started_at)), seen]
        made.add_row(_name(worker.node), *cells, *[_name(worker.host)] * elsewhere)
    return made


def _table(*heads: str) -> Table:
    """A head that begins with # stands over numbers."""
    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold cyan")
    for at, head in enumerate(heads):
        number = head.startswith("#")
        heading = Text(head.lstrip("#"), no_wrap=True, overflow="ellipsis")
        made.add_column(heading, justify="right" if number else "left", no_wrap=at > 0)
    return made


def _name(name: str) -> Text:
    return Text(printable(name), no_wrap=True, overflow="ellipsis")


def _number(number: int, style: str = "") -> Text:
    return Text(f"{number:,}" if number else "·", style=style if number else "dim")


def _of(shown: Sequence[Any], of: int) -> str:
    return f" ({len(shown)} of {of})" if len(shown) < of else ""
