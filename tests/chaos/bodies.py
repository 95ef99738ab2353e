"""The task bodies. Each notes in the ledger what it really did; with the store away it is given back and runs again."""

from __future__ import annotations

import functools
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from celery import Celery
from celery.exceptions import Reject

from argus_celery import current, durable
from argus_celery.errors import StoreError, StoreUnavailable
from tests.faults.business import effects, rows_of
from tests.faults.ledger import Ledger
from tests.faults.setup import Setup

MAX_LOSSES = 2
"""Of a task that kills its process each time."""


def register(app: Celery, setup: Setup) -> None:
    ledger = Ledger(setup.ledger)

    def note(task: Any, event: str, tag: str, detail: str = "") -> None:
        ledger.note(event, tag, task.request.id or "", current.token or 0, 0, detail)

    def quick(self: Any, tag: str) -> str:
        note(self, "run", tag)
        return tag

    def slow(self: Any, tag: str, seconds: float) -> None:
        note(self, "start", tag)
        time.sleep(seconds)
        note(self, "end", tag)

    def link(self: Any, number: int, tag: str) -> int:
        note(self, "run", tag, str(number))
        return number + 1

    def gather(self: Any, parts: list[str], tag: str) -> None:
        note(self, "run", tag, ",".join(parts))

    def flaky(self: Any, tag: str, times: int) -> None:
        if self.request.retries < times:
            note(self, "try", tag)
            raise self.retry(countdown=0.5, max_retries=None)
        note(self, "run", tag, str(self.request.retries))

    def effect(self: Any, tag: str) -> None:
        note(self, "start", tag)
        with current.transaction() as connection:
            if not rows_of(connection, tag):
                write(connection, tag)
        note(self, "end", tag)

    def trace(self: Any, tag: str) -> None:
        note(self, "start", tag)
        with current.transaction() as connection:
            write(connection, tag)
        note(self, "end", tag)

    def steps(self: Any, tag: str, count: int) -> None:
        note(self, "start", tag)
        for number in range(count):
            step(f"row {number}", f"{tag}.{number}")
        note(self, "end", tag)

    def sleepy(self: Any, tag: str, seconds: float) -> None:
        note(self, "start", tag)
        step("before", f"{tag}.before")
        current.sleep(seconds)
        step("behind", f"{tag}.behind")
        note(self, "end", tag)

    def readrow(self: Any, tag: str) -> None:
        with current.transaction() as connection:
            found = rows_of(connection, tag)
        note(self, "run", tag, str(found))

    def fan(self: Any, tag: str, count: int) -> None:
        note(self, "start", tag)
        for number in range(count):
            self.app.tasks["quick"].delay(f"{tag}.{number}")
        note(self, "end", tag)

    def broken(self: Any, tag: str) -> None:
        note(self, "run", tag)
        raise ValueError(tag)

    def errback(self: Any, parent_id: str) -> None:
        note(self, "run", f"{parent_id}.err")

    def poison(self: Any, tag: str) -> None:
        note(self, "start", tag)
        os.kill(os.getpid(), signal.SIGKILL)

    def tick(self: Any) -> None:
        note(self, "run", f"tick {current.due}")

    for body in (quick, slow, link, gather, flaky, effect, trace, steps, sleepy, readrow, fan, broken, tick):
        durable(app.task(given_back(body), name=body.__name__, bind=True, shared=False))
    # Bare: how many arguments it takes tells Celery whether it is a task or is called in place.
    durable(app.task(errback, name="errback", bind=True, shared=False))
    durable(max_losses=MAX_LOSSES)(app.task(poison, name="poison", bind=True, shared=False))


def step(name: str, tag: str) -> None:
    """A row and the record that it is written, in one commit."""
    with current.transaction() as connection:
        current.step(name, write, connection, tag)


def write(connection: sa.Connection, tag: str) -> None:
    connection.execute(sa.insert(effects).values(tag=tag, token=current.token))


def given_back(body: Callable[..., Any]) -> Callable[..., Any]:
    """A run that meets a store that is away is neither failed nor retried: it comes again under the same ids."""

    @functools.wraps(body)
    def run(*arguments: Any, **more: Any) -> Any:
        try:
            return body(*arguments, **more)
        except (StoreUnavailable, StoreError, sa.exc.DBAPIError) as error:
            raise Reject(f"the store is away: {error}", requeue=True) from error

    return run
