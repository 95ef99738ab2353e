"""A rate limit counts the starts of a task, and not the copies of its messages."""

from __future__ import annotations

import time
from typing import Any

import pytest
import redis
from celery.worker import state

from argus_celery import durable, signals
from tests.integration.embedded import Shop, shop, until

pytestmark = pytest.mark.redis

COPIES = 30


@pytest.fixture
def bench(sqlite_store_url: str, redis_broker: str) -> Shop:
    made = shop(sqlite_store_url, redis_broker)

    @durable
    @made.app.task(shared=False, name="shop.limited", rate_limit="1/s")
    def limited(name: str) -> None:
        made.log.append((name, time.monotonic()))

    return made


def test_copies_of_a_task_that_has_run_do_not_take_the_turn_of_those_that_wait(bench: Shop, redis_broker: str) -> None:
    client, limited = redis.Redis.from_url(redis_broker), bench.app.tasks["shop.limited"]
    first = limited.delay("first")
    client.rpush("celery", *client.lrange("celery", 0, 0) * COPIES)
    second = limited.delay("second")
    refused: list[str] = []

    def note(task_id: str, **_: Any) -> None:
        refused.append(task_id)

    signals.delivery_refused.connect(note, weak=False)
    try:
        with bench.worker(prefetch_multiplier=0):
            bench.ended(second.id, timeout=20)
            until(lambda: client.llen("celery") == 0 and client.hlen("unacked") == 0)
    finally:
        signals.delivery_refused.disconnect(note)
    assert [name for name, _ in bench.log] == ["first", "second"]
    assert bench.log[1][1] - bench.log[0][1] < COPIES / 3
    assert set(refused) == {first.id}
    assert not state.reserved_requests
