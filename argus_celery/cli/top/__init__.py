"""``argus top``."""

from __future__ import annotations

import math
import sys
from typing import Any

import click

from argus_celery.cli import options
from argus_celery.cli.common import echo_json, with_argus
from argus_celery.hooks.holder import is_dead_seen_from_here
from argus_celery.store.board import board

NO_TERMINAL = "top needs a terminal that can move its cursor: give --once for one look, or --json for programs"


def _number(ctx: click.Context, parameter: click.Parameter, given: float) -> float:
    """``nan`` is in every range."""
    if math.isnan(given):
        raise click.BadParameter("nan is not a number of seconds")
    return given


@click.command("top")
@click.option("--once", is_flag=True, help="One look, as plain text, for any terminal.")
@click.option(
    "--every",
    type=click.FloatRange(0.2, 3600),
    default=2.0,
    callback=_number,
    show_default=True,
    metavar="SECONDS",
    help="How often to look.",
)
@options.as_json
@with_argus
def command(argus: Any, once: bool, every: float, as_json: bool) -> None:
    """What goes on now: live projects with their speed, queues and workers. Press h in it for its keys."""
    from argus_celery.cli.top.live import Top, is_able
    from argus_celery.cli.top.screen import print_once

    store = argus.runtime.store
    if as_json:
        echo_json(board(store, is_dead_seen_from_here))
    elif once:
        print_once(store, board(store, is_dead_seen_from_here))
    elif not (sys.stdin.isatty() and sys.stdout.isatty() and is_able()):
        raise click.ClickException(NO_TERMINAL)
    else:
        Top(argus, every).run()
