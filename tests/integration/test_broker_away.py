"""A broker, or a result backend, that is away costs a durable call little, and loses nothing."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from argus_celery import durable, errors
from argus_celery.records import TaskState
from tests.integration.embedded import Shop, shop, until
from tests.services.server import free_port


def _shop(store: str, broker: str, backend: str) -> Shop:
    made = shop(store, broker, backend)

    @durable
    @made.app.task(shared=False, name="shop.add")
    def add(x: int, y: int) -> int:
        made.log.append((x, y))
        return x + y

    return made


@pytest.mark.parametrize("scheme", ["redis", "amqp"])
@pytest.mark.parametrize("backend", ["argus://", "away", "rpc://"])
def test_a_call_returns_quickly_and_is_recorded_while_the_broker_is_away(
    sqlite_store_url: str, scheme: str, backend: str
) -> None:
    away = f"{scheme}://127.0.0.1:{free_port()}/0"
    made = _shop(sqlite_store_url, away, f"redis://127.0.0.1:{free_port()}/1" if backend == "away" else backend)
    made.argus.project("first")  # makes the tables
    made.app.connection_for_write()  # imports the transport
    for _ in range(3):
        began = time.monotonic()
        result = made.app.tasks["shop.add"].delay(1, 2)
        assert time.monotonic() - began < 1
        assert made.task(result.id).state is TaskState.WAITING


@pytest.mark.redis
def test_what_could_not_be_published_runs_once_the_broker_is_there(sqlite_store_url: str, redis_broker: str) -> None:
    away = _shop(sqlite_store_url, f"redis://127.0.0.1:{free_port()}/0", "argus://")
    result = away.app.tasks["shop.add"].delay(1, 2)
    back = shop(sqlite_store_url, redis_broker)
    back.app.main = away.app.main

    @durable
    @back.app.task(shared=False, name="shop.add")
    def add(x: int, y: int) -> int:
        back.log.append((x, y))
        return x + y

    with back.worker():
        until(lambda: back.task(result.id).state is TaskState.SUCCEEDED)
    assert back.log == [(1, 2)]


@pytest.mark.redis
def test_a_call_with_the_store_away_raises_and_publishes_nothing(tmp_path: Path, redis_broker: str) -> None:
    import redis

    made = _shop("postgresql+psycopg://nobody@127.0.0.1:9/none", redis_broker, "argus://")
    with pytest.raises(errors.StoreUnavailable):
        made.app.tasks["shop.add"].delay(1, 2)
    assert redis.Redis.from_url(redis_broker).llen("celery") == 0
