"""``argus init``."""

from __future__ import annotations

from typing import Any

import click

from argus_celery.cli.common import with_argus_alone
from argus_celery.store import setup


@click.command("init")
@with_argus_alone
def command(argus: Any) -> None:
    """Make the store's tables or bring them up to date, and record that they belong to this app. Safe to repeat."""
    store = argus.runtime.store
    before = setup.version(store)
    after = setup.init(store)
    setup.check(store)
    what = "is up to date" if before == after else f"has the tables of version {after} now"
    click.echo(f"{store.url.render_as_string(hide_password=True)} {what}")
