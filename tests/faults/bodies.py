"""The task bodies of the bench. Each notes in the ledger what it really did."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from celery import Celery

from tests.faults.business import effects, rows_of
from tests.faults.ledger import Ledger
from tests.faults.setup import Setup


def register(app: Celery, setup: Setup) -> None:
    """Declare every body as a task of this app: durable, or ordinary on stock Celery."""
    ledger = Ledger(setup.ledger)

    def note(task: Any, event: str, tag: str, detail: str = "") -> None:
        token, attempt = _claim(setup)
        ledger.note(event, tag, task.request.id or "", token, attempt, detail)

    def quick(self: Any, tag: str) -> str:
        note(self, "run", tag)
        return tag

    def slow(self: Any, tag: str, seconds: float) -> str:
        note(self, "start", tag)
        time.sleep(seconds)
        note(self, "end", tag)
        return tag

    def selfkill(self: Any, tag: str) -> None:
        note(self, "start", tag)
        os.kill(os.getpid(), signal.SIGKILL)

    def endkill(self: Any, tag: str) -> None:
        """Its work is done, the completion is not: killed in between, on the first attempt only."""
        note(self, "start", tag)
        first = len(ledger.lines("start", tag)) == 1
        note(self, "end", tag)
        if first:
            os.kill(os.getpid(), signal.SIGKILL)

    def fanout(self: Any, tag: str) -> None:
        note(self, "start", tag)
        for number in range(3):
            self.app.tasks["quick"].delay(f"{tag}-{number}")
        if len(ledger.lines("start", tag)) == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    def effect(self: Any, tag: str) -> None:
        """Writes its row unless an earlier run has; on the first attempt only, is killed then."""
        note(self, "start", tag)
        write_effect(tag, once=True)
        if len(ledger.lines("start", tag)) == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    def lastact(self: Any, tag: str, seconds: float) -> str:
        """Slow work whose last act is the fenced effect."""
        note(self, "start", tag)
        time.sleep(seconds)
        note(self, "end", tag)
        write_effect(tag)
        note(self, "effect", tag)
        return tag

    def broken(self: Any, tag: str) -> None:
        note(self, "run", tag)
        raise ValueError(tag)

    def gather(self: Any, parts: list[str]) -> list[str]:
        note(self, "gathered", "body", detail=",".join(parts))
        return parts

    def readrow(self: Any, tag: str) -> int:
        with sa.create_engine(setup.store, poolclass=sa.NullPool).connect() as connection:
            found = rows_of(connection, tag)
        note(self, "run", tag, detail=str(found))
        return found

    def rare(self: Any, tag: str) -> None:
        note(self, "run", tag)

    def errback(parent_id: str) -> None:
        ledger.note("errback", parent_id)

    def write_effect(tag: str, *, once: bool = False) -> None:
        with _transaction(setup) as connection:
            if once and rows_of(connection, tag):
                return
            connection.execute(sa.insert(effects).values(tag=tag, token=_claim(setup)[0]))

    durable = _durable(setup)
    for body in (quick, slow, endkill, fanout, effect, lastact, readrow, rare, broken, gather):
        if body.__name__ not in setup.without:
            durable()(app.task(body, name=body.__name__, bind=True, shared=False))
    durable(max_losses=3)(app.task(selfkill, name="selfkill", bind=True, shared=False))
    durable()(app.task(errback, name="errback", shared=False))


def _durable(setup: Setup) -> Callable[..., Any]:
    if setup.stock:
        return lambda **options: lambda task: task
    from argus_celery import durable

    return durable


def _claim(setup: Setup) -> tuple[int, int]:
    """Token and attempt of the run in hand."""
    if setup.stock:
        return 0, 0
    from argus_celery import current

    return current.token or 0, current.attempt


def _transaction(setup: Setup) -> Any:
    if setup.stock:
        return sa.create_engine(setup.store, poolclass=sa.NullPool).begin()
    from argus_celery import current

    return current.transaction()
