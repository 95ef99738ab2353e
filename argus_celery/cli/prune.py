"""``argus prune``."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

import click

from argus_celery.cli import asking, options
from argus_celery.cli.common import echo_json, with_argus
from argus_celery.config import counted
from argus_celery.flow.prune import foresee

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}
MOST = 100 * 365 * 24 * 3600


def _seconds(ctx: click.Context, parameter: click.Parameter, given: str | None) -> float | None:
    """Of ``3d``, ``12h``, ``90m``, ``30s`` or ``2w``."""
    if given is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", given.strip())
    seconds = float(found[1]) * _UNITS[found[2]] if found else None
    if seconds is None or seconds > MOST:
        raise click.BadParameter(f"{given!r} is not a time such as 3d, 12h, 90m, 30s or 2w")
    return seconds


@click.command("prune")
@click.option(
    "--older-than", callback=_seconds, metavar="TIME", help="Such as 3d, 12h or 2w. Default: argus_retention."
)
@click.option("--dry-run", is_flag=True, help="Say how many projects and tasks would go, and drop nothing.")
@asking.yes
@options.as_json
@with_argus
def command(argus: Any, older_than: float | None, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Drop projects and tasks that ended longer ago, as workers do by themselves. What is still owed stays."""
    if dry_run:
        _print("would drop", _going(argus, older_than), as_json)
        return
    going = {} if yes else _going(argus, older_than)
    if any(going.values()):
        asking.confirm(f"Drop {_in_words(going)} for good?", yes=yes)
    _print("dropped", asdict(argus.pruning(older_than).run_once()), as_json)


def _going(argus: Any, older_than: float | None) -> dict[str, int]:
    """What a person would miss, and is counted beforehand."""
    going = foresee(argus.runtime, argus.ages(older_than))
    return {"projects": going.projects, "tasks": going.tasks}


def _print(what: str, counts: dict[str, int], as_json: bool) -> None:
    if as_json:
        echo_json(counts)
    else:
        click.echo(f"{what} {_in_words(counts)}")


def _in_words(counts: dict[str, int]) -> str:
    return ", ".join(counted(count, name.removesuffix("s")) for name, count in counts.items())
