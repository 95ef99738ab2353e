"""``celery -A app argus …``. Every ``celery`` call imports this module: what commands need is imported by them."""

from __future__ import annotations

import importlib
from typing import Any

import click

_COMMANDS = {
    "init": "make the store's tables or bring them up to date",
    "status": "the store and all tasks in it, by state",
    "projects": "all projects, filtered and sorted",
    "show": "one project and its first tasks",
    "tasks": "tasks of a project or of all, filtered",
    "task": "one task: attempts, message, error, what it waits for",
    "timeline": "who ran what and when, in the terminal or as a page",
    "top": "what goes on now: projects, queues, workers, live",
    "pause": "start nothing of a project any more",
    "resume": "go on with a paused project",
    "close": "take no more tasks: a project completes when drained",
    "reopen": "take tasks from outside again",
    "send": "tell a project an event, which tasks of it wait for",
    "cancel": "end what waits of a project, ask what runs to stop",
    "retry": "put back what failed, died or expired; what it led to follows",
    "restart": "run a task again, with all that follows it",
    "dead": "tasks that lost their worker too often; put them back",
    "sweep": "dispatch what is due and free what has lapsed; twice does no harm",
    "doctor": "is it safe, and how long does a recovery take at worst?",
    "prune": "drop what ended longer ago than argus_retention",
}


class _Lazy(click.Group):
    """Knows its commands by name, and imports the one that is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"argus_celery.cli.{name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from argus_celery.cli.common import did_you_mean

            raise click.UsageError(f"{error.message}{did_you_mean(args[0], list(_COMMANDS))}", ctx) from None


@click.group(cls=_Lazy)
def argus() -> None:
    """Durable projects: make the store, look into it, steer."""
