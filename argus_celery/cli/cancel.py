"""``argus cancel PROJECT``."""

from __future__ import annotations

from typing import Any

import click

from argus_celery.cli import asking, options
from argus_celery.cli.common import in_words, project_called, said_of, with_argus
from argus_celery.errors import ProjectClosed
from argus_celery.records import ProjectInfo, ProjectStatus


@click.command("cancel")
@options.project
@click.option("--reason", callback=options.possible, metavar="TEXT", help="Why; shown with the project.")
@asking.yes
@with_argus
def command(argus: Any, project: str, reason: str | None, yes: bool) -> None:
    """End what waits, and ask what runs to stop. It cannot be undone, so that it asks."""
    found = project_called(argus.runtime.store, project)
    _check(found)
    asking.confirm(f"Cancel {project!r}, and end {_alive(found)}?", yes=yes)
    argus.project(project).cancel(reason)
    found = project_called(argus.runtime.store, project)
    _check(found)
    click.echo(said_of(found))


def _check(project: ProjectInfo) -> None:
    if not project.status.live and project.status is not ProjectStatus.CANCELLED:
        raise ProjectClosed(f"project {project.name!r} is {project.status}: there is nothing left to cancel")


def _alive(project: ProjectInfo) -> str:
    return (
        in_words({state: count for state, count in project.counts.items() if not state.ended}) or "nothing: none waits"
    )
