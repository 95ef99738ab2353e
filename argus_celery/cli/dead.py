"""``argus dead``."""

from __future__ import annotations

from typing import Any

import click

from argus_celery.cli import completion, options
from argus_celery.cli.common import did_you_mean, echo_json, project_called, table, when, with_argus
from argus_celery.cli.exits import Exit
from argus_celery.cli.tables import printable
from argus_celery.cli.whys import last_line
from argus_celery.errors import TaskNotFound
from argus_celery.records import TaskInfo, TaskState
from argus_celery.store import listings
from argus_celery.store.engine import Store
from argus_celery.store.listings import TaskFilter, TaskOrder

COLUMNS = ["task", "project", "name", "key", "losses", "died", "error"]


@click.command("dead")
@click.option("--project", metavar="PROJECT", shell_complete=completion.projects, help="Only those of this project.")
@options.name
@options.queue
@options.key
@click.option("--requeue", is_flag=True, help="Put back all that match, with their losses counted from 0.")
@options.limit(50, "dead letters", least=0)
@options.as_json
@with_argus
def command(
    argus: Any,
    project: str | None,
    name: str | None,
    queue: str | None,
    key: str | None,
    requeue: bool,
    limit: int,
    as_json: bool,
) -> None:
    """Dead letters of all projects: tasks that lost their worker too often. Exit code 3 if there are some."""
    store = argus.runtime.store
    if project is not None:
        project_called(store, project)
    wanted = TaskFilter(project, [TaskState.DEAD], name, queue, key)
    if requeue:
        _requeue(argus, wanted, as_json)
        return
    found = listings.list_tasks(store, wanted, limit + 1, TaskOrder.ENDED)
    if as_json:
        echo_json(found[:limit])
    else:
        _print(found, limit)
    click.get_current_context().exit(Exit.FAILURES if found else Exit.DONE)


def _print(found: list[TaskInfo], limit: int) -> None:
    if not found:
        click.echo("no dead letters")
        return
    table(COLUMNS, [_row(task) for task in found[:limit]], under="error")
    if len(found) > limit:
        click.echo(f"there are more: these are the last {limit} to die")


def _row(task: TaskInfo) -> list[Any]:
    return [task.id, task.project, task.name, task.key, task.losses, when(task.finished_at), last_line(task.error)]


def _requeue(argus: Any, wanted: TaskFilter, as_json: bool) -> None:
    """All that match, however many would be shown. A filter that matches nothing is a mistake, and is told so."""
    found = listings.task_ids(argus.runtime.store, wanted)
    if not found:
        raise TaskNotFound(f"no dead letter matches: nothing was put back.{_near(argus.runtime.store, wanted)}")
    put_back: dict[str, list[str]] = {}
    for project, ids in found.items():
        put_back[project] = argus.project(project).retry_failed(state=str(TaskState.DEAD), ids=ids)
        if not as_json:
            click.echo(f"{printable(project)}: put back {len(put_back[project])}")
    if as_json:
        echo_json(put_back)


def _near(store: Store, wanted: TaskFilter) -> str:
    dead = listings.list_tasks(store, TaskFilter(states=wanted.states), 1000, TaskOrder.ENDED)
    return did_you_mean(wanted.name, sorted({task.name for task in dead})) if wanted.name else ""
