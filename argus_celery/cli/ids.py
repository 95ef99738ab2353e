"""The task that is meant: its whole id, or a beginning of it that no other id has."""

from __future__ import annotations

import click

from argus_celery.cli import completion
from argus_celery.cli.common import did_you_mean
from argus_celery.cli.tables import printable
from argus_celery.errors import TaskNotFound
from argus_celery.store import listings
from argus_celery.store.engine import Store
from argus_celery.store.listings import TaskFilter, TaskOrder

SHOWN = 10
"""Tasks that are told where several are meant."""
argument = click.argument("task_id", metavar="ID", shell_complete=completion.task_ids)


def task_called(store: Store, given: str, project: str | None = None) -> str:
    """The id of the task (of this project) that is meant. Raises ``TaskNotFound`` with the near one."""
    found = listings.tasks_beginning(store, given, project, SHOWN + 1)
    if len(found) == 1 or (found and found[0].id == given):
        return found[0].id
    if not found:
        where = f" in project {project!r}" if project is not None else ""
        raise TaskNotFound(f"there is no task {given!r}{where}.{did_you_mean(given, _newest(store, project))}")
    told = "".join(f"\n  {task.id}  {printable(task.name)}  {task.state}" for task in found[:SHOWN])
    more = "\n  and more" if len(found) > SHOWN else ""
    raise click.ClickException(f"{given!r} is the beginning of several ids: say more of the one you mean{told}{more}")


def _newest(store: Store, project: str | None) -> list[str]:
    return [task.id for task in listings.list_tasks(store, TaskFilter(project), 1000, TaskOrder.NEWEST)]
