"""``argus retry PROJECT``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from argus_celery.cli import options
from argus_celery.cli.common import did_you_mean, echo_json, project_called, say_if_paused, with_argus
from argus_celery.errors import TaskNotFound
from argus_celery.store import listings
from argus_celery.store.engine import Store
from argus_celery.store.listings import TaskFilter, TaskOrder
from argus_celery.store.tasks import RETRIABLE


@click.command("retry")
@options.project
@click.option("--task", "ids", metavar="ID", multiple=True, help="Only this task; may be given more than once.")
@click.option("--state", type=click.Choice([str(state) for state in RETRIABLE]), help="Only what ended so.")
@options.name
@options.as_json
@with_argus
def command(argus: Any, project: str, ids: tuple[str, ...], state: str | None, name: str | None, as_json: bool) -> None:
    """Put back what failed, died or expired. Finished tasks do not run again; what was waiting for these follows."""
    store = argus.runtime.store
    project_called(store, project)
    found = argus.project(project)
    with naming_the_near(store, project, ids):
        if ids and not (state or name):
            put_back = [task_id for task_id in ids if found.retry(task_id)]
        else:
            put_back = found.retry_failed(state=state, name=name, ids=ids or None)
    if as_json:
        echo_json({"put_back": put_back})
    else:
        click.echo(f"put back {len(put_back)}")
    say_if_paused(store, project)


@contextmanager
def naming_the_near(store: Store, project: str, ids: Sequence[str]) -> Iterator[None]:
    """A task that is not found is told with the id that is nearest to it."""
    try:
        yield
    except TaskNotFound as error:
        known = [task.id for task in listings.list_tasks(store, TaskFilter(project), 1000, TaskOrder.NEWEST)]
        near = [did_you_mean(task_id, known) for task_id in ids if task_id not in known]
        raise TaskNotFound(f"{error}{'.' if any(near) else ''}{''.join(near[:1])}") from None
