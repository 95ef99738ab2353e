"""``argus send PROJECT EVENT [JSON]``."""

from __future__ import annotations

import json
from typing import Any

import click

from argus_celery.cli import options
from argus_celery.cli.common import project_called, with_argus
from argus_celery.cli.tables import printable
from argus_celery.store import waits

SHOWN = 10
"""Events that are named where another was told."""


def _loaded(ctx: click.Context, parameter: click.Parameter, given: str | None) -> Any:
    try:
        return None if given is None else json.loads(given)
    except ValueError as error:
        raise click.BadParameter(f"{given!r} is not JSON ({error}); a text stands in quotes: '\"yes\"'") from None


@click.command("send")
@options.project
@click.argument("event", callback=options.possible)
@click.argument("payload", metavar="[JSON]", required=False, callback=_loaded)
@with_argus
def command(argus: Any, project: str, event: str, payload: Any) -> None:
    """Tell PROJECT an event, once for all: tasks that wait for it go on. Exit code 1 if it had been told before.

    It is told, too, if nobody waits for it yet; a line on stderr says so.
    """
    store = argus.runtime.store
    project_called(store, project)
    awaited = waits.awaited(store, project)  # before it is told, which ends the waits
    if not argus.project(project).send(event, payload):
        raise click.ClickException(printable(f"{project} had been told {event!r} before, and that stands"))
    click.echo(printable(f"{project} was told {event!r}"))
    if event not in awaited:
        click.echo(printable(_nobody_waits(event, awaited)), err=True)


def _nobody_waits(event: str, awaited: list[str]) -> str:
    """An event may be told before anybody waits for it; a misspelt one is seen by what is waited for."""
    told = f"nobody waits for {event!r} now"
    if not awaited:
        return told
    more = f" and {len(awaited) - SHOWN} more" if len(awaited) > SHOWN else ""
    return f"{told}; waited for: {', '.join(map(repr, awaited[:SHOWN]))}{more}"
