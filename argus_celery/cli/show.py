"""``argus show PROJECT``."""

from __future__ import annotations

import json
from typing import Any

import click

from argus_celery.cli import options
from argus_celery.cli.common import (
    counts_of,
    echo_json,
    exit_code_of,
    facts,
    instant,
    project_called,
    status_of,
    with_argus,
)
from argus_celery.cli.projects import as_object, progress_of
from argus_celery.cli.tasks import print_tasks
from argus_celery.records import OnFailure, ProjectInfo, TaskState
from argus_celery.store import listings
from argus_celery.store.listings import TaskFilter


@click.command("show")
@options.project
@options.states
@options.limit(20, "tasks, the oldest first", least=0)
@options.as_json
@with_argus
def command(argus: Any, project: str, states: tuple[str, ...], limit: int, as_json: bool) -> None:
    """One project and its first tasks. Exit code 3 if tasks of it failed or are dead."""
    store = argus.runtime.store
    found = project_called(store, project)
    wanted = TaskFilter(project, [TaskState(state) for state in states])
    tasks = listings.list_tasks(store, wanted, limit + 1)
    if as_json:
        echo_json({**as_object(found), "tasks": tasks[:limit]})
    else:
        _print(found)
        if limit and (found.total or states):
            click.echo()
            print_tasks(store, tasks[:limit])
        if limit and len(tasks) > limit:
            click.echo(f"there are more: these are the first {limit}")
    click.get_current_context().exit(exit_code_of(found))


def _print(project: ProjectInfo) -> None:
    facts(
        [
            ("project", project.name),
            ("status", status_of(project)),
            ("why", project.reason),
            ("created", instant(project.created_at)),
            ("closed", instant(project.closed_at)),
            ("ended", instant(project.finished_at)),
            ("progress", progress_of(project)),
            ("tasks", counts_of(project)),
            (
                "suspended",
                f"{project.suspended} of the waiting: argus tasks says for what" if project.suspended else None,
            ),
            ("deadline", instant(project.deadline_at)),
            ("on failure", project.on_failure if project.on_failure is not OnFailure.CONTINUE else None),
            ("priority", project.priority or None),
            ("weight", project.weight if project.weight != 1 else None),
            ("limit", project.limit),
            ("meta", json.dumps(project.meta, ensure_ascii=False) if project.meta else None),
        ]
    )
