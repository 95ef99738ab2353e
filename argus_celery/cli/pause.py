"""``argus pause PROJECT``."""

from __future__ import annotations

from typing import Any

import click

from argus_celery.cli import options
from argus_celery.cli.common import project_called, said_of, with_argus


@click.command("pause")
@options.project
@click.option("--stop", is_flag=True, help="Tell what runs to stop, too; it runs again when the project goes on.")
@with_argus
def command(argus: Any, project: str, stop: bool) -> None:
    """Start nothing of the project any more; what runs goes on. Pausing twice changes nothing."""
    project_called(argus.runtime.store, project)
    argus.project(project).pause(running="stop" if stop else "finish")
    click.echo(said_of(project_called(argus.runtime.store, project)))
