"""``argus status``."""

from __future__ import annotations

import json
from typing import Any

import click

from argus_celery.cli.common import table, with_argus
from argus_celery.flow import restore
from argus_celery.store import reports, setup


@click.command("status")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@with_argus
def command(argus: Any, as_json: bool) -> None:
    """The store, its version, and all tasks in it by state. Exit code 1 if the store cannot be used."""
    store = argus.runtime.store
    facts: dict[str, Any] = {
        "due": restore.probe(argus.runtime),
        "store": store.url.render_as_string(hide_password=True),
        "version": setup.version(store),
        "tasks": {str(state): count for state, count in reports.totals(store).items()},
    }
    if as_json:
        click.echo(json.dumps(facts))
        return
    click.echo(f"store    {facts['store']}\nversion  {facts['version']}\ndue now  {'yes' if facts['due'] else 'no'}")
    table(["state", "tasks"], list(facts["tasks"].items()))
