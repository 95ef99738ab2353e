"""In whatever form results are stored, they come back; what cannot be stored is told, and nothing grows silently."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from kombu.exceptions import ContentDisallowed

from argus_celery.records import TaskState
from argus_celery.store import groups, setup
from argus_celery.store.engine import Store
from tests.integration.embedded import Shop, shop, until
from tests.integration.result_bodies import OrderFailed, register

pytestmark = pytest.mark.redis

VALUES = [{"a": [1, 2.5, None, True]}, "ä" * 100, [], {"n": {"m": "x"}}]


def made(store: str, broker: str, *, is_durable: bool = True, **conf: Any) -> Shop:
    bench = shop(store, broker, max_payload=10_000)
    bench.app.conf.update(conf)
    register(bench, is_durable=is_durable)
    return bench


@pytest.mark.parametrize("is_durable", [True, False], ids=["durable", "ordinary"])
@pytest.mark.parametrize("serializer", ["json", "pickle", "yaml", "msgpack"])
def test_results_come_back_in_every_serialiser(
    sqlite_store_url: str, redis_broker: str, serializer: str, is_durable: bool
) -> None:
    pytest.importorskip({"yaml": "yaml"}.get(serializer, serializer))
    conf = {"result_serializer": serializer, "result_accept_content": [serializer], "result_compression": "gzip"}
    bench = made(sqlite_store_url, redis_broker, is_durable=is_durable, **conf)
    with bench.worker():
        for value in VALUES:
            assert bench.app.tasks["shop.give"].delay(value).get(timeout=20) == value
        failed = bench.app.tasks["shop.fail"].delay()
        with pytest.raises(OrderFailed, match="no money"):
            failed.get(timeout=20)
        with pytest.raises(Exception, match="lock"):
            bench.app.tasks["shop.fail"].delay("lock").get(timeout=20)


def test_what_is_not_accepted_is_not_read_and_an_owed_result_is_all_the_same(
    sqlite_store_url: str, redis_broker: str
) -> None:
    bench = made(sqlite_store_url, redis_broker, result_serializer="pickle", result_accept_content=["json"])
    with bench.worker():
        result = bench.app.tasks["shop.give"].delay(1)
        bench.ended(result.id)
        with pytest.raises(ContentDisallowed):
            result.get(timeout=20)
    assert bench.argus.results.get_task_meta(result.id)["result"] == 1


def test_an_extended_result_tells_of_its_call(sqlite_store_url: str, redis_broker: str) -> None:
    bench = made(sqlite_store_url, redis_broker, result_extended=True)
    with bench.worker():
        result = bench.app.tasks["shop.add"].apply_async((1,), {"y": 2})
        assert result.get(timeout=20) == 3
    assert (result.name, result.args, result.kwargs, result.retries) == ("shop.add", [1], {"y": 2}, 0)
    assert result.queue == "celery" and result.worker


@pytest.mark.parametrize("is_durable", [True, False], ids=["durable", "ordinary"])
def test_what_is_too_large_fails_visibly(sqlite_store_url: str, redis_broker: str, is_durable: bool) -> None:
    bench = made(sqlite_store_url, redis_broker, is_durable=is_durable)
    with bench.worker():
        result = bench.app.tasks["shop.add"].delay("x" * 6_000, "y" * 3_900)
        with pytest.raises(Exception, match="argus_max_payload"):
            result.get(timeout=20)
        assert result.state == "FAILURE"
    assert all(len(row.result or b"") <= 10_000 for row in bench.rows().values())


def test_an_ignored_result_is_no_row_of_an_ordinary_task(sqlite_store_url: str, redis_broker: str) -> None:
    bench = made(sqlite_store_url, redis_broker, is_durable=False)
    with bench.worker():
        bench.app.tasks["shop.silent"].delay()
        assert bench.app.tasks["shop.give"].delay(1).get(timeout=20) == 1
    assert [row.name for row in bench.rows().values()] == ["shop.give"]


def test_the_cleanup_task_forgets_what_has_expired(sqlite_store_url: str, redis_broker: str) -> None:
    bench = made(sqlite_store_url, redis_broker, result_expires=3600)
    assert bench.app.backend.supports_autoexpire is False, "or beat would not send the task"
    with bench.worker():
        old = bench.app.tasks["shop.give"].delay("old")
        assert old.get(timeout=20) == "old"
        groups.save(bench.argus.runtime.store, "g", b"{}")
        bench.argus.runtime.store.clock_shift += 3601 * 1000
        bench.app.tasks["celery.backend_cleanup"].delay()
        until(lambda: groups.read(bench.argus.runtime.store, "g") is None)
        until(lambda: bench.rows()[old.id].result == b"")
    bench.app.backend._cache.clear()
    assert bench.app.AsyncResult(old.id).state == "PENDING"
    assert bench.task(old.id).state is TaskState.SUCCEEDED


def test_a_forked_child_waits_by_itself(sqlite_store_url: str, redis_broker: str) -> None:
    bench = made(sqlite_store_url, redis_broker)
    add = bench.app.tasks["shop.add"]
    with bench.worker():
        assert add.delay(1).get(timeout=20) == 1
        child = os.fork()
        if child == 0:
            try:
                os._exit(0 if add.delay(2).get(timeout=20) == 2 else 1)
            finally:
                os._exit(2)
        assert add.delay(3).get(timeout=20) == 3
        assert os.waitpid(child, 0)[1] == 0


def test_greenlets_wait_beside_each_other(store_url: str) -> None:
    pytest.importorskip("gevent")
    store = Store(store_url, app_name="greenlets")
    setup.init(store)
    store.dispose()
    command = [sys.executable, "-m", "tests.integration.gevent_waiting", store_url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["True"], done.stderr
