"""``argus retry PROJECT``."""

from __future__ import annotations

from typing import Any

import click

from argus_celery.cli import completion, options
from argus_celery.cli.common import echo_json, project_called, say_if_paused, with_argus
from argus_celery.cli.ids import task_called
from argus_celery.store.tasks import RETRIABLE


@click.command("retry")
@options.project
@click.option(
    "--task",
    "given",
    metavar="ID",
    multiple=True,
    shell_complete=completion.task_ids,
    help="Only this task, by its id or a beginning of it that is its own; may be given more than once.",
)
@click.option("--state", type=click.Choice([str(state) for state in RETRIABLE]), help="Only what ended so.")
@options.name
@options.as_json
@with_argus
def command(
    argus: Any, project: str, given: tuple[str, ...], state: str | None, name: str | None, as_json: bool
) -> None:
    """Put back what failed, died or expired. Finished tasks do not run again; what was waiting for these follows."""
    store = argus.runtime.store
    project_called(store, project)
    found = argus.project(project)
    ids = [task_called(store, one, project) for one in given]
    if ids and not (state or name):
        put_back = [task_id for task_id in ids if found.retry(task_id)]
    else:
        put_back = found.retry_failed(state=state, name=name, ids=ids or None)
    if as_json:
        echo_json({"put_back": put_back})
    else:
        click.echo(f"put back {len(put_back)}")
    say_if_paused(store, project)
