"""A shop on ``argus://`` with SQLite, to which each test adds the package it is about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from argus_celery import current
from argus_celery.flow.dispatch import dispatch
from argus_celery.store import messages
from argus_celery.store.broker import broker
from argus_celery.store.schema import leases
from tests.integration.embedded import Shop, shop


@pytest.fixture
def made(sqlite_store_url: str) -> Shop:
    return new_shop(sqlite_store_url)


def new_shop(store: str) -> Shop:
    made = shop(store, f"argus+{store}", durable_tasks=["shop.*"])
    made.app.conf.task_default_queue = "q"
    return made


def send_again(made: Shop, *, lost: bool) -> None:
    """What lies with the broker is dispatched once more; ``lost``: the first messages are gone."""
    if lost:
        assert messages.purge(broker(made.app.conf.broker_url.removeprefix("argus+")), "q") > 0
    made.argus.runtime.store.clock_shift += 60_000
    assert dispatch(made.argus.runtime).dispatched


def lose_lease(made: Shop) -> None:
    """In a body: another takes the task away, and gives it back to the store."""
    taken = sa.update(leases).where(leases.c.task_id == current.task_id)
    taken = taken.values(token=leases.c.token + 1, holder="", eligible_at=0)
    made.argus.runtime.store.statement(lambda connection: connection.execute(taken))


def bodies(made: Shop) -> dict[str, Callable[..., Any]]:
    """Tasks that succeed, fail, retry once, and lose their lease once."""

    @made.app.task(shared=False, name="shop.add")
    def add(x: int, y: int) -> int:
        made.log.append((x, y))
        return x + y

    @made.app.task(shared=False, name="shop.fail")
    def fail() -> None:
        raise ValueError("a real failure")

    @made.app.task(shared=False, name="shop.again", bind=True, max_retries=2, default_retry_delay=0)
    def again(self: Any) -> str:
        if not self.request.retries:
            raise self.retry(exc=OSError("not yet"), countdown=0)
        return "at last"

    @made.app.task(shared=False, name="shop.robbed")
    def robbed(how: str) -> str:
        made.log.append(how)
        if made.log.count(how) == 1:
            lose_lease(made)
            if how == "noticed":
                current.check()
        return how

    return {"add": add, "fail": fail, "again": again, "robbed": robbed}
