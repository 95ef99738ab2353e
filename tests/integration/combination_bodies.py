"""``celery -A tests.integration.combination_bodies worker``: bodies that are cut short, ordinary or durable."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

from celery import Celery, Task, signals
from celery.exceptions import SoftTimeLimitExceeded

from argus_celery import Argus, durable
from tests.faults.ledger import Ledger
from tests.faults.setup import TIMINGS, Setup

BEYOND = 60.0
"""Seconds that no limit allows."""
LATE = {"acks_late": True}


def make_app(setup: Setup, *, producer: bool = False) -> Celery:
    app = Celery("combinations", broker=setup.broker, backend=setup.results, set_as_current=not producer)
    app.conf.update(broker_connection_retry_on_startup=True, **setup.conf)
    if not setup.stock:
        Argus(app, store=setup.store, **TIMINGS)
    register(app, setup)
    return app


def register(app: Celery, setup: Setup) -> None:
    ledger = Ledger(setup.ledger)

    class Watched(Task):  # type: ignore[misc]
        abstract = True

        def on_failure(self, exc: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
            ledger.note("on_failure", task_id, detail=type(exc).__name__)

        def after_return(self, status: str, retval: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
            ledger.note("after_return", task_id, detail=status)

    def note(task: Any) -> bool:
        """Is this the first run?"""
        ledger.note("run", task.request.id, detail=str(task.request.retries))
        return len(ledger.lines("run", task.request.id)) == 1

    def slow(self: Any, catches: bool = False, stays: bool = False) -> str:
        note(self)
        ends = time.monotonic() + BEYOND
        while True:
            try:  # around all: the limit strikes between two sleeps too
                while time.monotonic() < ends:
                    time.sleep(0.05)
                return "never"
            except SoftTimeLimitExceeded:
                if not catches:
                    raise
                if not stays:
                    return "caught"

    def leaves(self: Any, how: str) -> str:
        if note(self) and how != "stays":
            _leave(how)
        return "done"

    def leaves_in_retry(self: Any) -> str:
        note(self)
        if self.request.retries == 0:
            raise self.retry(countdown=0)
        if len(ledger.lines("run", self.request.id)) == 2:
            _leave("kill")
        return f"retries {self.request.retries}"

    def poison(self: Any) -> None:
        note(self)
        _leave("kill")

    def errback(parent_id: str) -> None:
        ledger.note("errback", parent_id)

    def declare(body: Any, name: str, **options: Any) -> None:
        bind = {} if body is errback else {"bind": True, "base": Watched}
        made = app.task(body, name=name, shared=False, **bind, **options)
        if not setup.stock:
            durable(max_losses=3)(made)

    declare(slow, "slow")
    declare(slow, "slow_late", acks_on_timeout=False, **LATE)
    declare(leaves, "leaves")
    declare(leaves, "leaves_late", **LATE)
    declare(leaves, "leaves_rejecting", reject_on_worker_lost=True, **LATE)
    declare(leaves, "leaves_retrying", retry_on_worker_lost=True, default_retry_delay=0, **LATE)
    declare(leaves_in_retry, "leaves_in_retry")
    declare(poison, "poison")
    declare(errback, "errback")


def _leave(how: str) -> None:
    if how == "sys.exit":
        sys.exit(3)
    if how == "os._exit":
        os._exit(3)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise {"MemoryError": MemoryError, "KeyboardInterrupt": KeyboardInterrupt}[how]("no more")


def watch(setup: Setup) -> None:
    ledger = Ledger(setup.ledger)

    @signals.worker_ready.connect(weak=False)
    def ready(sender: Any, **_: Any) -> None:
        ledger.note("ready", str(sender.hostname).split("@")[0], detail=str(os.getppid()))

    for name in ("prerun", "postrun", "success", "failure", "retry"):
        getattr(signals, f"task_{name}").connect(_receiver(ledger, name), weak=False)


def _receiver(ledger: Ledger, name: str) -> Any:
    def receive(sender: Any, task_id: str = "", request: Any = None, **_: Any) -> None:
        ledger.note(name, task_id or (request or sender.request).id)

    return receive


if "ARGUS_FAULTS_SETUP" in os.environ:
    _setup = Setup.from_environment()
    app = make_app(_setup)
    watch(_setup)
