"""What the shell completes from the store: names of projects, tasks and queues. An error completes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from argus_celery.store.engine import Store

MOST = 100

Look = Callable[[Store, click.Context, str], list[str]]


def completing(look: Look) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """A shell's question must not end in a traceback, whatever the app, its settings or the store do."""

    def complete(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
        try:
            store = _store_of(ctx)
            return [] if store is None else [name for name in look(store, ctx, begun) if name.startswith(begun)]
        except Exception:
            return []

    return complete


def _store_of(ctx: click.Context) -> Store | None:
    """While a shell asks, no command has run: the name after ``-A`` has not become an app yet."""
    from celery.app.utils import find_app

    from argus_celery.cli.common import installed_on

    app: Any = getattr(ctx.find_object(object), "app", None) or ctx.find_root().params.get("app")
    argus = installed_on(find_app(app) if isinstance(app, str) else app) if app is not None else None
    return None if argus is None else argus.runtime.store


@completing
def projects(store: Store, ctx: click.Context, begun: str) -> list[str]:
    from argus_celery.store import listings

    return listings.project_names(store, f"{_plain(begun)}*", MOST)


@completing
def task_names(store: Store, ctx: click.Context, begun: str) -> list[str]:
    from argus_celery.store import listings

    return listings.task_names(store, ctx.params.get("project"))


@completing
def task_ids(store: Store, ctx: click.Context, begun: str) -> list[str]:
    from argus_celery.store import listings

    return [task.id for task in listings.tasks_beginning(store, begun, ctx.params.get("project"), MOST)]


@completing
def queues(store: Store, ctx: click.Context, begun: str) -> list[str]:
    from argus_celery.store import board

    return board.queue_names(store)


def _plain(begun: str) -> str:
    return begun.replace("*", "?")
