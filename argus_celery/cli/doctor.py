"""``argus doctor``."""

from __future__ import annotations

import textwrap
from typing import Any

import click

from argus_celery.cli import options
from argus_celery.cli.common import echo_json, with_argus_alone
from argus_celery.cli.exits import Exit
from argus_celery.cli.tables import echo, printable, styled, width_of_terminal

_COLOURS = {"ok": "green", "unknown": "cyan", "warning": "yellow", "error": "red"}
_EXITS = {"ok": Exit.DONE, "warning": Exit.WARNINGS, "error": Exit.ERRORS}


@click.command("doctor")
@options.as_json
@with_argus_alone
def command(argus: Any, as_json: bool) -> None:
    """Check app, broker and store, and derive the worst recovery time. Exit code 4 on warnings, 5 on errors."""
    from argus_celery.doctor import examine

    found = examine(argus)
    if as_json:
        told = {"worst_recovery": found.worst_recovery, "recovery": found.recoveries, "findings": found.findings}
        echo_json(told)
    else:
        _print(found)
    click.get_current_context().exit(_EXITS[found.worst])


def _print(found: Any) -> None:
    """Wrapped to the terminal, below their labels."""
    width = width_of_terminal()
    if found.recoveries:
        echo(f"worst recovery time {found.worst_recovery:g} s: how long until work goes on, after", bold=True)
        for one in found.recoveries:
            seconds = f"{one.seconds:g} s"
            click.echo(f"{seconds:>8}  " + _wrapped(one.fault, 10, width))
            echo(" " * 10 + _wrapped(one.because, 10, width), dim=True)
        click.echo()
    label = max(len(one.check) for one in found.findings) + 2
    for one in found.findings:
        level = styled(f"{one.level:8} ", fg=_COLOURS[one.level])
        click.echo(level + f"{one.check:<{label}}" + _wrapped(one.what, 9 + label, width))
        if one.fix:
            click.echo(" " * (9 + label) + _wrapped(f"fix: {one.fix}", 9 + label, width))


def _wrapped(text: str, indent: int, width: int) -> str:
    lines = textwrap.wrap(
        printable(" ".join(text.split())), max(width - indent, 30), break_long_words=False, break_on_hyphens=False
    )
    return ("\n" + " " * indent).join(lines)
