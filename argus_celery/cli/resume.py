"""``argus resume PROJECT``."""

from __future__ import annotations

from typing import Any

import click

from argus_celery.cli import options
from argus_celery.cli.common import project_called, said_of, with_argus
from argus_celery.errors import ProjectClosed


@click.command("resume")
@options.project
@with_argus
def command(argus: Any, project: str) -> None:
    """Go on with a paused project, in order. Of one that is not paused nothing is changed."""
    found = project_called(argus.runtime.store, project)
    if not found.status.live:
        raise ProjectClosed(f"project {project!r} is {found.status} and cannot be resumed")
    argus.project(project).resume()
    click.echo(said_of(project_called(argus.runtime.store, project)))
