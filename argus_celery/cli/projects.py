"""``argus projects``."""

from __future__ import annotations

from typing import Any

import click

from argus_celery.cli import completion, options
from argus_celery.cli.common import counts_of, echo_json, status_of, table, when, with_argus
from argus_celery.records import ProjectInfo, ProjectStatus
from argus_celery.store import listings
from argus_celery.store.listings import ProjectFilter, ProjectOrder

PAUSED = "paused"
LIVE = "live"
STATUSES = [*(str(status) for status in ProjectStatus), PAUSED, LIVE]


@click.command("projects")
@click.argument(
    "names", metavar="[GLOB]", required=False, callback=options.possible, shell_complete=completion.projects
)
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(STATUSES),
    help="Only projects of this status; live is open or closed. May be given more than once.",
)
@click.option(
    "--sort",
    type=click.Choice([str(order) for order in ProjectOrder]),
    default=str(ProjectOrder.CREATED),
    show_default=True,
    help="By the newest, the last to finish, name, or the most tasks alive or failed.",
)
@options.limit(100, "projects")
@options.as_json
@with_argus
def command(argus: Any, names: str | None, statuses: tuple[str, ...], sort: str, limit: int, as_json: bool) -> None:
    """All projects with their tasks counted by state, or those whose name matches GLOB (* and ? are wild)."""
    wanted = ProjectFilter(names, _statuses(statuses), True if PAUSED in statuses else None)
    found = listings.list_projects(argus.runtime.store, wanted, limit + 1, ProjectOrder(sort))
    shown = found[:limit]
    if as_json:
        echo_json([as_object(project) for project in shown])
        return
    if not shown:
        click.echo("no project matches" if names or statuses else "there are no projects yet")
        return
    rows = [(p.name, status_of(p), progress_of(p), when(p.created_at), counts_of(p)) for p in shown]
    table(["project", "status", "progress", "created", "tasks"], rows, under="tasks")
    if len(found) > limit:
        click.echo(f"there are more: these are the first {limit}")


def _statuses(given: tuple[str, ...]) -> set[ProjectStatus]:
    named = {ProjectStatus(one) for one in given if one not in (PAUSED, LIVE)}
    return named | ({status for status in ProjectStatus if status.live} if LIVE in given else set())


def progress_of(project: ProjectInfo) -> str:
    """``512/1,000``: how many of its tasks have ended."""
    return f"{project.ended:,}/{project.total:,}"


def as_object(project: ProjectInfo) -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(project), "total": project.total, "ended": project.ended}
