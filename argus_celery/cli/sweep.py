"""``argus sweep``."""

from __future__ import annotations

from typing import Any

import click

from argus_celery.cli.common import with_argus
from argus_celery.flow import restore


@click.command("sweep")
@with_argus
def command(argus: Any) -> None:
    """Dispatch what is due, free what has lapsed, complete what has drained: what workers and beat do all the time."""
    dispatched = lapsed = dead = 0
    while True:
        report = restore.sweep(argus.runtime)
        dispatched += len(report.dispatched)
        lapsed += len(report.lapsed)
        dead += len(report.dead)
        if not (report.more and report.dispatched):
            break
    click.echo(f"dispatched {dispatched}, of which lapsed {lapsed}; dead {dead}")
