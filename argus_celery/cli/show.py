"""``argus show NAME``."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click

from argus_celery.cli.common import counts_of, did_you_mean, exit_code_of, instant, status_of, table, with_argus
from argus_celery.cli.projects import as_object
from argus_celery.errors import ProjectNotFound
from argus_celery.records import ProjectInfo, TaskInfo, TaskState
from argus_celery.store import reports


@click.command("show")
@click.argument("name")
@click.option("--state", type=click.Choice([str(state) for state in TaskState]), help="Only tasks in this state.")
@click.option("--limit", default=20, show_default=True, help="How many tasks, the oldest first.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@with_argus
def command(argus: Any, name: str, state: str | None, limit: int, as_json: bool) -> None:
    """One project and its tasks. Exit code 2 if some of them failed or are dead."""
    store = argus.runtime.store
    project = reports.project_info(store, name)
    if project is None:
        known = [found.name for found in reports.all_projects(store)]
        raise ProjectNotFound(f"there is no project {name!r}.{did_you_mean(name, known)}")
    tasks = reports.project_tasks(store, name, TaskState(state) if state else None, limit)
    if as_json:
        click.echo(json.dumps({**as_object(project), "tasks": [asdict(task) for task in tasks]}))
    else:
        _print(project, tasks)
    click.get_current_context().exit(exit_code_of(project))


def _print(project: ProjectInfo, tasks: list[TaskInfo]) -> None:
    lines = [("project", project.name), ("status", status_of(project)), ("created", instant(project.created_at))]
    lines += [("closed", instant(project.closed_at)), ("ended", instant(project.finished_at))]
    lines += [("tasks", counts_of(project))]
    click.echo("\n".join(f"{label:<9}{value}" for label, value in lines if value))
    table(["task", "name", "key", "state", "attempts", "losses", "error"], [_row(task) for task in tasks])


def _row(task: TaskInfo) -> tuple[Any, ...]:
    error = (task.error or "").strip().splitlines()
    return (task.id, task.name, task.key, task.state, task.attempts, task.losses, error[-1] if error else None)
