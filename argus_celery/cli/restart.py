"""``argus restart PROJECT ID``."""

from __future__ import annotations

from typing import Any

import click

from argus_celery.cli import asking, ids, options
from argus_celery.cli.common import project_called, say_if_paused, with_argus


@click.command("restart")
@options.project
@ids.argument
@asking.yes
@with_argus
def command(argus: Any, project: str, task_id: str, yes: bool) -> None:
    """Run a task again that has ended, with all that follows it; the rest of the project is kept. It asks first."""
    store = argus.runtime.store
    project_called(store, project)
    task_id = ids.task_called(store, task_id, project)
    asking.confirm(f"Run {task_id} again, and drop the outcomes of what follows it?", yes=yes)
    again = argus.project(project).restart(task_id)
    click.echo(f"runs again: {len(again)}")
    say_if_paused(store, project)
