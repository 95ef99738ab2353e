"""What the commands share: the app's Argus, errors as one sentence, tables, times."""

from __future__ import annotations

import difflib
import functools
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import click

from argus_celery.errors import ArgusError
from argus_celery.records import ProjectInfo, ProjectStatus, TaskState

NO_APP = "this app has no Argus: give one with  celery -A your_app argus …, and call Argus(app) in it"

Command = Callable[..., None]


def with_argus(command: Command) -> Command:
    """Hand the command the app's Argus; an error of Argus is one sentence and exit code 1."""

    @click.pass_context
    @functools.wraps(command)
    def wrapped(ctx: click.Context, *args: Any, **options: Any) -> None:
        try:
            command(_argus_of(ctx), *args, **options)
        except ArgusError as error:
            raise click.ClickException(str(error)) from error

    return wrapped


def _argus_of(ctx: click.Context) -> Any:
    from argus_celery.app import Argus

    app = getattr(ctx.find_object(object), "app", None)
    if app is None:
        raise click.ClickException(NO_APP)
    app.loader.import_default_modules()
    argus = Argus.of(app)
    if argus is None:
        raise click.ClickException(NO_APP)
    return argus


def did_you_mean(given: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(given, known, n=1, cutoff=0.5)
    return f" Did you mean {near[0]!r}?" if near else ""


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table; columns whose cells are all numbers stand right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD)
    for at, column in enumerate(columns):
        made.add_column(column, justify="right" if rows and all(isinstance(row[at], int) for row in rows) else "left")
    for row in rows:
        made.add_row(*("" if cell is None else str(cell) for cell in row))
    # Without a terminal there is no width to fit: what reads this wants whole cells.
    Console(width=None if sys.stdout.isatty() else 240).print(made)


def instant(milliseconds: int | None) -> str | None:
    """The store's milliseconds as local time."""
    if milliseconds is None:
        return None
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(milliseconds / 1000))


def status_of(project: ProjectInfo) -> str:
    return f"{project.status} (paused)" if project.paused and project.status.live else str(project.status)


def counts_of(project: ProjectInfo) -> str:
    """The states that occur: ``3 running, 7 succeeded``."""
    return ", ".join(f"{count} {state}" for state, count in project.counts.items() if count)


def exit_code_of(project: ProjectInfo) -> int:
    """2 where tasks failed or died, so that a script can ask."""
    bad = project.counts[TaskState.FAILED] + project.counts[TaskState.DEAD]
    return 2 if bad or project.status is ProjectStatus.FAILED else 0
