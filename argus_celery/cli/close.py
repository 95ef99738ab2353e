"""``argus close PROJECT``."""

from __future__ import annotations

from typing import Any

import click

from argus_celery.cli import options
from argus_celery.cli.common import project_called, said_of, with_argus


@click.command("close")
@options.project
@with_argus
def command(argus: Any, project: str) -> None:
    """Take no more tasks from outside: the project completes when it has drained. Closing twice changes nothing."""
    project_called(argus.runtime.store, project)
    argus.project(project).close()
    click.echo(said_of(project_called(argus.runtime.store, project)))
