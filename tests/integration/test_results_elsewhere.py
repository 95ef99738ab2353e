"""Whatever result backend a user has stays theirs: fenced, and told later if it was away at the finish."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from celery.exceptions import TimeoutError

from argus_celery.errors import LeaseLost
from argus_celery.flow.claim import claim
from argus_celery.flow.complete import complete
from argus_celery.records import Delivery, Outcome, TaskState
from argus_celery.store.schema import leases
from tests.integration.embedded import Shop, shop, until
from tests.integration.result_bodies import OrderFailed, register
from tests.services import RedisServer

pytestmark = pytest.mark.redis

QUICK = {"socket_connect_timeout": 1, "socket_timeout": 1, "retry_policy": {"max_retries": 1, "interval_max": 0.1}}


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer(aof=True) as server:
        yield server


@pytest.fixture(params=["redis", "database", "rpc"])
def bench(sqlite_store_url: str, redis_broker: str, tmp_path: Path, request: pytest.FixtureRequest) -> Shop:
    backends = {"redis": redis_broker, "database": f"db+sqlite:///{tmp_path / 'results.db'}", "rpc": "rpc://"}
    made = shop(sqlite_store_url, redis_broker, backends[request.param])
    made.gate = register(made)  # type: ignore[attr-defined]
    return made


def take_away(bench: Shop) -> None:
    """Another holder has every lease now."""
    store = bench.argus.runtime.store
    taken = sa.update(leases).values(holder="wother", token=leases.c.token + 2)
    store.transaction(lambda connection: connection.execute(taken))


def deliver(bench: Shop) -> int:
    bench.argus.runtime.store.clock_shift += 11_000
    return bench.argus.pay_debts()


def test_values_failures_and_children_reach_the_backend(bench: Shop) -> None:
    with bench.worker(concurrency=2):
        assert bench.app.tasks["shop.add"].delay(1, 2).get(timeout=20) == 3
        failed = bench.app.tasks["shop.fail"].delay()
        with pytest.raises(OrderFailed):
            failed.get(timeout=20)
        assert "result_bodies.py" in failed.traceback
        parent = bench.app.tasks["shop.parent"].delay(2)
        parent.get(timeout=20)
        assert len(parent.children[0]) == 2
    until(lambda: not any(row.undelivered for row in bench.rows().values()))


def test_a_stale_run_writes_neither_a_state_nor_a_result(bench: Shop) -> None:
    gate, told = threading.Event(), []

    from argus_celery import durable

    @durable
    @bench.app.task(shared=False, name="shop.stale", bind=True)
    def stale(self: Any) -> str:
        self.update_state(state="PROGRESS", meta=1)
        bench.log.append("here")
        gate.wait(20)
        try:
            self.update_state(state="PROGRESS", meta=2)
        except LeaseLost:
            told.append("refused")
            raise
        return "written"

    assert "shop.stale" in bench.app.tasks
    with bench.worker():
        result = stale.delay()
        until(lambda: bench.log)
        take_away(bench)
        gate.set()
        until(lambda: told)
    assert told == ["refused"]
    if not bench.app.conf.result_backend.startswith("rpc"):
        assert (result.state, result.info) == ("PROGRESS", 1)
    with pytest.raises(TimeoutError):
        result.get(timeout=0.5)


def test_what_was_owed_at_a_crash_is_delivered_as_the_run_would_have(bench: Shop) -> None:
    """The process dies between the commit and the telling."""
    rt = bench.argus.runtime
    done = bench.app.tasks["shop.add"].delay(1)
    failed = bench.app.tasks["shop.fail"].delay()
    for result, value, state, word in (
        (done, {"sum": 7}, TaskState.SUCCEEDED, "SUCCESS"),
        (failed, OrderFailed(17, "no money"), TaskState.FAILED, "FAILURE"),
    ):
        granted = claim(rt, "w1", [Delivery(result.id, 1)])[0]
        assert granted is not None
        document = bench.argus.results.document(value, word, "its traceback", None)
        complete(rt, granted, Outcome(state, result=document, error=None, undelivered=True))
    assert deliver(bench) == 2
    assert done.get(timeout=10) == {"sum": 7}
    with pytest.raises(OrderFailed, match="no money"):
        failed.get(timeout=10)
    assert failed.traceback == "its traceback"


def test_redis_stopped_at_the_finish_gets_the_result_when_it_is_back(
    sqlite_store_url: str, redis_broker: str, server: RedisServer
) -> None:
    bench = shop(sqlite_store_url, redis_broker, server.url)
    bench.app.conf.result_backend_transport_options = QUICK
    gate = register(bench)
    with bench.worker():
        result = bench.app.tasks["shop.told"].delay()
        assert gate.here.wait(20)
        server.stop()
        gate.open.set()
        assert bench.ended(result.id).state is TaskState.SUCCEEDED
        assert bench.rows()[result.id].undelivered > 0
        server.start()
        bench.argus.runtime.store.clock_shift += 11_000
        until(lambda: bench.rows()[result.id].undelivered == 0, 40)
        assert bench.app.backend.get_result(result.id) == "end"


def test_a_worker_goes_on_while_the_backend_is_away(
    sqlite_store_url: str, redis_broker: str, server: RedisServer
) -> None:
    """Celery's own patience with a backend that is away must not cost the worker its slots for good."""
    bench = shop(sqlite_store_url, redis_broker, server.url)
    bench.app.conf.result_backend_always_retry = True
    bench.app.conf.result_backend_transport_options = QUICK
    register(bench)
    server.stop()
    began = time.monotonic()
    with bench.worker(concurrency=1):
        ids = [bench.app.tasks["shop.add"].delay(i).id for i in range(3)]
        for id_ in ids:
            assert bench.ended(id_, 60).state is TaskState.SUCCEEDED
    assert time.monotonic() - began < 60
