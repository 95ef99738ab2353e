"""``argus timeline PROJECT``."""

from __future__ import annotations

from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from argus_celery.cli import options
from argus_celery.cli.common import echo_json, project_called, with_argus
from argus_celery.cli.timeline.words import counted
from argus_celery.timeline import Timeline

_FILE = click.Path(dir_okay=False, path_type=Path)
_LIMIT = click.IntRange(1, options.MOST)


@click.command("timeline")
@options.project
@click.option(
    "--limit", type=_LIMIT, default=10_000, show_default=True, metavar="N", help="How many attempts, the newest."
)
@click.option("--html", "html_file", type=_FILE, metavar="FILE", help="Write a page to look closer at.")
@click.option("--svg", "svg_file", type=_FILE, metavar="FILE", help="Write a picture.")
@options.as_json
@with_argus
def command(argus: Any, project: str, limit: int, html_file: Path | None, svg_file: Path | None, as_json: bool) -> None:
    """Who ran what and when: a lane for each worker, kills and hand-overs marked."""
    project_called(argus.runtime.store, project)
    timeline = argus.project(project).timeline(limit)
    for file, form in ((html_file, "page"), (svg_file, "svg")):
        if file is not None:
            _write(timeline, file, form)
    if as_json:
        echo_json(as_object(timeline))
    elif html_file is None and svg_file is None:
        _show(timeline)


def as_object(timeline: Timeline) -> dict[str, Any]:
    found = [{**asdict(one), "known_until": one.known_until} for one in timeline.attempts]
    return {"project": timeline.project, "now": timeline.now, "earlier": timeline.earlier, "attempts": found}


def _show(timeline: Timeline) -> None:
    from rich.console import Console

    from argus_celery.cli.timeline.lanes import chart
    from argus_celery.cli.timeline.text import show

    no_color = getattr(click.get_current_context().find_object(object), "no_color", False)
    show(Console(highlight=False, no_color=no_color or None), chart(timeline))


def _write(timeline: Timeline, file: Path, form: str) -> None:
    from argus_celery.cli.timeline.lanes import chart

    made: str = getattr(import_module(f"argus_celery.cli.timeline.{form}"), form)(chart(timeline))
    try:
        file.write_text(made, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{file} cannot be written: {error.strerror}") from error
    click.echo(f"{file}: {counted(len(timeline.attempts), 'attempt')}", err=True)
