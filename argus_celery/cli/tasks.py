"""``argus tasks [PROJECT]``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from argus_celery.cli import completion, options
from argus_celery.cli.common import echo_json, project_called, table, waits_of, with_argus
from argus_celery.records import TaskInfo, TaskState
from argus_celery.store import listings
from argus_celery.store.listings import TaskFilter, TaskOrder

COLUMNS = ["task", "state", "name", "key", "queue", "attempts", "losses", "why"]


@click.command("tasks")
@click.argument("project", required=False, shell_complete=completion.projects)
@options.states
@options.name
@options.queue
@options.key
@click.option("--newest", is_flag=True, help="The newest first; else the oldest.")
@options.limit(50, "tasks")
@options.as_json
@with_argus
def command(
    argus: Any,
    project: str | None,
    states: tuple[str, ...],
    name: str | None,
    queue: str | None,
    key: str | None,
    newest: bool,
    limit: int,
    as_json: bool,
) -> None:
    """Tasks of PROJECT, or of all projects."""
    store = argus.runtime.store
    if project is not None:
        project_called(store, project)
    wanted = TaskFilter(project, [TaskState(state) for state in states], name, queue, key)
    found = listings.list_tasks(store, wanted, limit + 1, TaskOrder.NEWEST if newest else TaskOrder.OLDEST)
    if as_json:
        echo_json(found[:limit])
        return
    print_tasks(found[:limit], with_project=project is None)
    if len(found) > limit:
        click.echo(f"there are more: these are the first {limit}")


def print_tasks(tasks: Sequence[TaskInfo], *, with_project: bool = False) -> None:
    if not tasks:
        click.echo("no task matches")
        return
    place = ["project"] if with_project else []
    rows = [[*([task.project] if with_project else []), *_row(task)] for task in tasks]
    table([*place, *COLUMNS], rows, under="why")


def _row(task: TaskInfo) -> list[Any]:
    queue = task.queue if task.queue != "celery" else None
    return [
        task.id,
        task.state,
        task.name,
        task.key,
        queue,
        task.attempts or None,
        task.losses or None,
        last_line(task.error) or waits_of(task.suspended),
    ]


def last_line(error: str | None) -> str | None:
    """What a person looks at first in a traceback."""
    lines = (error or "").strip().splitlines()
    return lines[-1] if lines else None
