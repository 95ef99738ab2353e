"""``celery -A tests.integration.worker_bodies worker``: tasks that put the worker's main process to the test."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from celery import Celery, signals

from argus_celery import Argus, current, durable
from argus_celery.errors import LeaseLost
from tests.faults.ledger import Ledger
from tests.faults.setup import TIMINGS, Setup


def make_app(setup: Setup, *, producer: bool = False) -> Celery:
    app = Celery("bodies", broker=setup.broker, set_as_current=not producer)
    app.conf.update(
        task_acks_late=setup.ack == "late",
        result_backend="argus://",
        broker_connection_retry_on_startup=True,
        broker_transport_options=dict(setup.broker_options),
        **setup.conf,
    )
    Argus(app, store=setup.store, **{**TIMINGS, **setup.settings})
    register(app, setup)
    return app


def register(app: Celery, setup: Setup) -> None:
    ledger = Ledger(setup.ledger)

    def note(task: Any, event: str, tag: str) -> None:
        ledger.note(event, tag, task.request.id, current.token or 0, current.attempt)

    def slow(self: Any, tag: str, seconds: float) -> str:
        """Sleeps in short steps, as work that is no single call does."""
        note(self, "start", tag)
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                time.sleep(0.05)
        except LeaseLost:
            note(self, "told", tag)
            raise
        note(self, "end", tag)
        return tag

    def asleep(self: Any, tag: str, seconds: float) -> str:
        """One blocking call."""
        note(self, "start", tag)
        try:
            time.sleep(seconds)
        except LeaseLost:
            note(self, "told", tag)
            raise
        note(self, "end", tag)
        return tag

    def greedy(self: Any, tag: str) -> None:
        note(self, "start", tag)
        raise MemoryError("no more")

    def leaver(self: Any, tag: str) -> None:
        note(self, "start", tag)
        if current.attempt == 1:
            sys.exit(3)
        note(self, "end", tag)

    def errback(parent_id: str) -> None:
        ledger.note("errback", parent_id)

    for body in (slow, asleep, greedy, leaver):
        if body.__name__ not in setup.without:
            durable(app.task(body, name=body.__name__, bind=True, shared=False))
    durable(app.task(slow, name="limited", bind=True, shared=False, time_limit=2))
    durable(app.task(errback, name="errback", shared=False))


def watch(app: Celery, setup: Setup) -> None:
    ledger = Ledger(setup.ledger)

    @signals.worker_ready.connect(weak=False)
    def ready(sender: Any, **_: Any) -> None:
        ledger.note("ready", str(sender.hostname).split("@")[0], detail=str(os.getppid()))

    @signals.task_failure.connect(weak=False)
    def failed(task_id: str, exception: Any, **_: Any) -> None:
        ledger.note("failure", task_id, detail=type(exception).__name__)

    @signals.task_success.connect(weak=False)
    def succeeded(sender: Any, **_: Any) -> None:
        ledger.note("success", sender.request.id)

    @signals.task_revoked.connect(weak=False)
    def revoked(request: Any, **_: Any) -> None:
        ledger.note("revoked", request.id)


if "ARGUS_FAULTS_SETUP" in os.environ:
    _setup = Setup.from_environment()
    app = make_app(_setup)
    watch(app, _setup)
