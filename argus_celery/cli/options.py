"""Options and arguments that several commands have, in the same words."""

from __future__ import annotations

from typing import Any

import click

from argus_celery.cli import completion
from argus_celery.records import TaskState
from argus_celery.store.names import fault_of

MOST = 1_000_000


def possible(ctx: click.Context, parameter: click.Parameter, given: str | None) -> str | None:
    """Refuse what no store can hold, and so can find nothing."""
    fault = fault_of(given) if given is not None else None
    if fault is not None:
        raise click.BadParameter(f"it {fault}")
    return given


project = click.argument("project", shell_complete=completion.projects)
as_json = click.option("--json", "as_json", is_flag=True, help="For programs; times in milliseconds.")
name = click.option(
    "--name",
    metavar="GLOB",
    callback=possible,
    shell_complete=completion.task_names,
    help="Only tasks of this name; * and ? are wild.",
)
queue = click.option(
    "--queue", metavar="NAME", callback=possible, shell_complete=completion.queues, help="Only tasks of this queue."
)
key = click.option(
    "--key", metavar="GLOB", callback=possible, help="Only tasks under this idempotency key; * and ? are wild."
)
states = click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([str(state) for state in TaskState]),
    help="Only tasks in this state; may be given more than once.",
)


def limit(default: int, what: str, least: int = 1) -> Any:
    shown = click.IntRange(least, MOST)
    return click.option(
        "--limit", type=shown, default=default, show_default=True, metavar="N", help=f"How many {what}."
    )
