"""Asking before something is destroyed."""

from __future__ import annotations

import sys

import click

yes = click.option("--yes", is_flag=True, help="Do not ask.")


def confirm(question: str, *, yes: bool) -> None:
    """Go on if a person at the terminal says yes, or ``--yes`` was given; else the command ends with nothing done."""
    if yes:
        return
    if not is_terminal():
        raise click.ClickException(f"{question} There is no terminal to answer on: give --yes.")
    if not click.confirm(question):
        raise click.ClickException("nothing was done")


def is_terminal() -> bool:
    """Is there somebody to ask?"""
    return sys.stdin.isatty()
