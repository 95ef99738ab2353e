"""``argus sweep``."""

from __future__ import annotations

from typing import Any

import click

from argus_celery.cli import options
from argus_celery.cli.common import echo_json, with_argus
from argus_celery.flow import restore
from argus_celery.flow.mend import mend


@click.command("sweep")
@options.as_json
@with_argus
def command(argus: Any, as_json: bool) -> None:
    """Dispatch what is due, free what has lapsed, tell what is owed, complete what has drained, mend: as workers do."""
    done = dict.fromkeys(("dispatched", "lapsed", "dead", "mended"), 0)
    while some := mend(argus.runtime):
        done["mended"] += some
    while True:
        report = restore.sweep(argus.runtime)
        for what in ("dispatched", "lapsed", "dead"):
            done[what] += len(getattr(report, what))
        if not (report.more and report.dispatched):
            break
    argus.pay_debts()
    if as_json:
        echo_json(done)
        return
    mended = f"; mended {done['mended']}" if done["mended"] else ""
    click.echo(f"dispatched {done['dispatched']}, of which lapsed {done['lapsed']}; dead {done['dead']}{mended}")
