"""``argus projects``."""

from __future__ import annotations

import json
from typing import Any

import click

from argus_celery.cli.common import counts_of, instant, status_of, table, with_argus
from argus_celery.records import ProjectInfo
from argus_celery.store import reports


@click.command("projects")
@click.option("--json", "as_json", is_flag=True, help="For programs: a list of objects, times in milliseconds.")
@click.option("--limit", default=100, show_default=True, help="How many, the newest first.")
@with_argus
def command(argus: Any, as_json: bool, limit: int) -> None:
    """All projects with their tasks counted by state."""
    found = reports.all_projects(argus.runtime.store, limit)
    if as_json:
        click.echo(json.dumps([as_object(project) for project in found]))
        return
    rows = [(p.name, status_of(p), p.ended, p.total, counts_of(p), instant(p.created_at)) for p in found]
    table(["project", "status", "ended", "of", "tasks", "created"], rows)


def as_object(project: ProjectInfo) -> dict[str, Any]:
    return {
        "name": project.name,
        "status": str(project.status),
        "paused": project.paused,
        "created_at": project.created_at,
        "closed_at": project.closed_at,
        "finished_at": project.finished_at,
        "counts": {str(state): count for state, count in project.counts.items()},
    }
