"""A beat entry that sweeps, so that any scheduler keeps a project going; workers do it by themselves too."""

from __future__ import annotations

from typing import Any

from argus_celery.flow import restore
from argus_celery.hooks import rescued
from argus_celery.hooks.attached import attached, own_task

NAME = "argus.sweep"


def install(argus: Any) -> None:
    """Add the task, and its entry where ``beat_schedule`` is looked up: by each scheduler there is."""
    app = argus.app

    @own_task(app, NAME, bind=True, ignore_result=True, acks_late=False, max_retries=0)
    def sweep(self: Any) -> None:
        argus = attached(self.app)
        rescued.say(argus.runtime, restore.sweep(argus.runtime))
        argus.pay_debts()

    def add_entry(sender: Any, **_: Any) -> None:
        interval = argus.settings.sweep_interval
        # A sweep that is late is worth nothing: the next one does the same.
        sender.add_periodic_task(interval, sender.tasks[NAME].s(), name=NAME, expires=interval)

    app.on_after_finalize.connect(add_entry, weak=False)
