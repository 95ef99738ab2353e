"""``celery -A tests.integration.worker_bodies worker``: tasks that put the worker's main process to the test."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from typing import Any

from celery import Celery, signals
from celery.exceptions import Reject, SoftTimeLimitExceeded

from argus_celery import Argus, current, durable
from argus_celery.errors import LeaseLost
from tests.faults.ledger import Ledger
from tests.faults.setup import TIMINGS, Setup
from tests.integration import async_bodies, step_bodies, wait_bodies


def make_app(setup: Setup, *, producer: bool = False) -> Celery:
    app = Celery("bodies", broker=setup.broker, set_as_current=not producer)
    app.conf.result_backend = "argus://"
    app.conf.update(
        task_acks_late=setup.ack == "late",
        broker_connection_retry_on_startup=True,
        broker_transport_options=dict(setup.broker_options),
        **setup.conf,
    )
    Argus(app, store=setup.store, **{**TIMINGS, **setup.settings})
    register(app, setup)
    async_bodies.register(app, Ledger(setup.ledger))
    step_bodies.register(app, Ledger(setup.ledger))
    wait_bodies.register(app, Ledger(setup.ledger))
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

    def busy(self: Any, tag: str, seconds: float) -> None:
        """On the first attempt it computes all the time, and never lets go."""
        note(self, "start", tag)
        end = time.monotonic() + seconds
        while current.attempt == 1 and time.monotonic() < end:
            pass
        note(self, "end", tag)

    def chatty(self: Any, tag: str, seconds: float) -> str:
        """Tells its own state all the time."""
        note(self, "start", tag)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.update_state(state="PROGRESS", meta={"tag": tag})
            time.sleep(0.05)
        note(self, "end", tag)
        return tag

    def at_first_failing(self: Any, tag: str) -> None:
        """Fails at its first run."""
        note(self, "start", tag)
        if current.attempt == 1:
            raise ValueError(tag)

    def greedy(self: Any, tag: str) -> None:
        note(self, "start", tag)
        raise MemoryError("no more")

    def leaver(self: Any, tag: str) -> None:
        note(self, "start", tag)
        if current.attempt == 1:
            sys.exit(3)
        note(self, "end", tag)

    def swallowing(self: Any, tag: str, seconds: float) -> None:
        """Ends orderly at its soft time limit."""
        try:
            slow(self, tag, seconds)
        except SoftTimeLimitExceeded:
            note(self, "soft", tag)

    def stuck(self: Any, tag: str) -> None:
        """Its first run comes to no end and shows no progress; it can be told."""
        slow(self, tag, 60 if current.attempt == 1 else 0)

    def deaf(self: Any, tag: str) -> None:
        """The same, and nothing that is raised in it ends it."""
        note(self, "start", tag)
        while current.attempt == 1:
            with suppress(BaseException):
                time.sleep(60)
        note(self, "end", tag)

    def steady(self: Any, tag: str, seconds: float) -> None:
        """Says all the time that it goes on."""
        note(self, "start", tag)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            current.progress()
            time.sleep(0.05)
        note(self, "end", tag)

    def remembers(self: Any, tag: str, way: str) -> None:
        """The first run ends in this way; the second notes how."""
        before = current.previous
        told = f"{before.outcome}: {before.detail}" if before is not None else ""
        ledger.note("start", tag, self.request.id, current.token or 0, current.attempt, told)
        if before is not None:
            return
        if way == "sleep":
            current.sleep(2)
        if way == "exit":
            sys.exit(3)
        if way == "reject":
            raise Reject("not now", requeue=True)
        if way == "retry":
            raise self.retry(exc=OSError("the shop is closed"), countdown=0)
        if way == "fail":
            raise ValueError("no such order")
        slow(self, "hanging", 60)

    def add(x: int, y: int) -> int:
        return x + y

    def total(parts: list[int]) -> int:
        return sum(parts)

    def again(self: Any, tag: str) -> int:
        note(self, "start", tag)
        if self.request.retries < 2:
            raise self.retry(countdown=0)
        return int(self.request.retries)

    def failing(self: Any, tag: str) -> None:
        note(self, "start", tag)
        raise ValueError(tag)

    def errback(parent_id: str) -> None:
        ledger.note("errback", parent_id)

    for body in (slow, asleep, busy, chatty, greedy, leaver, again, failing, at_first_failing):
        if body.__name__ not in setup.without:
            durable(app.task(body, name=body.__name__, bind=True, shared=False))
    durable(app.task(slow, name="limited", bind=True, shared=False, time_limit=2))
    durable(app.task(swallowing, name="soft_limited", bind=True, shared=False, soft_time_limit=2))
    durable(app.task(remembers, name="remembers", bind=True, shared=False))
    durable(app.task(remembers, name="remembers_limit", bind=True, shared=False, time_limit=2))
    for body in (stuck, deaf, steady):
        durable(app.task(body, name=body.__name__, bind=True, shared=False), progress_timeout=3)
    durable(app.task(remembers, name="remembers_progress", bind=True, shared=False), progress_timeout=3)
    for plain in (errback, add, total):
        durable(app.task(plain, name=plain.__name__, shared=False))


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
