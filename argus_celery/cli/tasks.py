"""``argus tasks [PROJECT]``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from argus_celery.cli import completion, options
from argus_celery.cli.common import echo_json, project_called, span, table, when, with_argus
from argus_celery.cli.whys import why
from argus_celery.records import Message, TaskInfo, TaskState
from argus_celery.store import listings
from argus_celery.store.engine import Store
from argus_celery.store.listings import LastRun, TaskFilter, TaskOrder

Cell = Callable[[TaskInfo], Any]


@click.command("tasks")
@click.argument("project", required=False, shell_complete=completion.projects)
@options.states
@options.name
@options.queue
@options.key
@click.option("--newest", is_flag=True, help="The newest first; else the oldest.")
@click.option("--wide", is_flag=True, help="Also when each was enqueued, how long it ran, where, and its arguments.")
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
    wide: bool,
    limit: int,
    as_json: bool,
) -> None:
    """Tasks of PROJECT, or of all projects, in the order in which they were enqueued."""
    store = argus.runtime.store
    if project is not None:
        project_called(store, project)
    wanted = TaskFilter(project, [TaskState(state) for state in states], name, queue, key)
    found = listings.list_tasks(store, wanted, limit + 1, TaskOrder.NEWEST if newest else TaskOrder.OLDEST)
    if as_json:
        echo_json(found[:limit])
        return
    print_tasks(store, found[:limit], with_project=project is None, wide=wide)
    if len(found) > limit:
        click.echo(f"there are more: these are the {'last' if newest else 'first'} {limit}")


def print_tasks(store: Store, tasks: Sequence[TaskInfo], *, with_project: bool = False, wide: bool = False) -> None:
    if not tasks:
        click.echo("no task matches")
        return
    now = store.statement(store.read_now)
    columns = {**({"project": lambda task: task.project} if with_project else {}), **_columns(now)}
    if wide:
        columns |= _more(store, tasks, now)
    columns["why"] = lambda task: why(task, now)
    table(list(columns), [[cell(task) for cell in columns.values()] for task in tasks], under="why")


def _columns(now: int) -> dict[str, Cell]:
    """``for`` tells since when it is in its state."""
    return {
        "task": lambda task: task.id,
        "state": lambda task: task.state,
        "for": lambda task: span(max(now - task.since, 0)),
        "name": lambda task: task.name,
        "key": lambda task: task.key,
        "queue": lambda task: task.queue if task.queue != "celery" else None,
        "attempts": lambda task: task.attempts or None,
        "losses": lambda task: task.losses or None,
        "worker": lambda task: task.node,
    }


def _more(store: Store, tasks: Sequence[TaskInfo], now: int) -> dict[str, Cell]:
    ids = [task.id for task in tasks]
    messages, runs = listings.messages_of(store, ids), listings.last_runs(store, ids)
    return {
        "worker": lambda task: task.node or _run(runs, task).node,
        "enqueued": lambda task: when(task.created_at),
        "ran for": lambda task: _ran_for(task, _run(runs, task), now),
        "args": lambda task: _arguments(messages.get(task.id)),
    }


def _run(runs: dict[str, LastRun], task: TaskInfo) -> LastRun:
    return runs.get(task.id, LastRun(None, None))


def _ran_for(task: TaskInfo, last: LastRun, now: int) -> str | None:
    ms = last.ms if task.started_at is None else now - task.started_at
    return None if ms is None else span(ms)


def _arguments(message: Message | None) -> str | None:
    """As Celery itself shows them, which leaves out what is long."""
    if message is None:
        return None
    args, kwargs = (str(message.headers.get(name) or "") for name in ("argsrepr", "kwargsrepr"))
    return " ".join(part for part in (args if args != "()" else "", kwargs if kwargs != "{}" else "") if part) or None
