"""``argus reopen PROJECT``."""

from __future__ import annotations

from typing import Any

import click

from argus_celery.cli import options
from argus_celery.cli.common import project_called, said_of, with_argus


@click.command("reopen")
@options.project
@with_argus
def command(argus: Any, project: str) -> None:
    """Take tasks from outside again: of what was closed or has ended. What was cancelled of it stays so."""
    project_called(argus.runtime.store, project)
    argus.project(project).reopen()
    click.echo(said_of(project_called(argus.runtime.store, project)))
