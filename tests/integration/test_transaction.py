"""``current.transaction()`` and ``current.check()``: a running task's own writes, under its claim."""

from __future__ import annotations

import threading

import pytest
import sqlalchemy as sa

from argus_celery import current, durable, errors
from argus_celery.records import TaskState
from argus_celery.store.schema import leases
from tests.integration.embedded import Shop, shop, until

pytestmark = pytest.mark.redis


@pytest.fixture
def bench(sqlite_store_url: str, redis_broker: str) -> Shop:
    made = shop(sqlite_store_url, redis_broker)
    made.argus.runtime.store.transaction(lambda c: c.exec_driver_sql("CREATE TABLE effects (tag TEXT, token INTEGER)"))
    return made


def _effects(bench: Shop) -> list[tuple[str, int]]:
    query = "SELECT tag, token FROM effects ORDER BY token"
    return bench.argus.runtime.store.statement(lambda c: [tuple(row) for row in c.exec_driver_sql(query)])


def _write(tag: str) -> None:
    with current.transaction() as connection:
        connection.execute(sa.text("INSERT INTO effects VALUES (:tag, :token)"), {"tag": tag, "token": current.token})


def _write_and_fail() -> None:
    with current.transaction() as connection:
        connection.execute(sa.text("INSERT INTO effects VALUES ('undone', 0)"))
        1 / 0


def test_writes_of_a_running_task_commit_with_its_claim(bench: Shop) -> None:
    @durable
    @bench.app.task(shared=False, name="shop.effect")
    def effect() -> None:
        current.check()
        _write("e")
        with pytest.raises(ZeroDivisionError):
            _write_and_fail()

    result = effect.delay()
    with bench.worker():
        assert bench.ended(result.id).state is TaskState.SUCCEEDED
    assert _effects(bench) == [("e", 2)]


def test_a_run_that_lost_its_lease_writes_nothing(bench: Shop) -> None:
    gate, seen = threading.Event(), []

    @durable
    @bench.app.task(shared=False, name="shop.late")
    def late() -> None:
        bench.log.append("start")
        assert gate.wait(20)
        for act in (current.check, lambda: _write("late")):
            try:
                act()
            except errors.LeaseLost:
                seen.append("refused")
        assert current.lost.is_set()

    late.delay()
    with bench.worker():
        until(lambda: bench.log)
        taken = sa.update(leases).values(holder="wother", token=leases.c.token + 2)
        bench.argus.runtime.store.transaction(lambda connection: connection.execute(taken))
        gate.set()
        until(lambda: len(seen) == 2)
    assert _effects(bench) == []
