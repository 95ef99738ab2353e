"""``argus restart PROJECT ID``."""

from __future__ import annotations

from typing import Any

import click

from argus_celery.cli import asking, options
from argus_celery.cli.common import project_called, say_if_paused, with_argus
from argus_celery.cli.retry import naming_the_near


@click.command("restart")
@options.project
@click.argument("task_id", metavar="ID")
@asking.yes
@with_argus
def command(argus: Any, project: str, task_id: str, yes: bool) -> None:
    """Run a task again that has ended, with all that follows it; the rest of the project is kept. It asks first."""
    store = argus.runtime.store
    project_called(store, project)
    asking.confirm(f"Run {task_id} again, and drop the outcomes of what follows it?", yes=yes)
    with naming_the_near(store, project, [task_id]):
        again = argus.project(project).restart(task_id)
    click.echo(f"runs again: {len(again)}")
    say_if_paused(store, project)
