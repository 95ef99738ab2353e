"""What is stored is what goes out, byte for byte; only the token differs."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis

from argus_celery import durable
from argus_celery.flow.dispatch import dispatch
from argus_celery.records import TOKEN_HEADER, TaskState
from argus_celery.store import tasks
from tests.integration.embedded import Shop, shop


def _task(made: Shop) -> Any:
    @durable
    @made.app.task(shared=False, name="shop.add")
    def add(x: int, y: int) -> int:
        made.log.append((x, y))
        return x + y

    return add


@pytest.mark.redis
@pytest.mark.parametrize(
    "options",
    [{}, {"compression": "zlib", "priority": 6}, {"serializer": "pickle"}, {"headers": {"trace": "x"}}],
    ids=str,
)
def test_a_repeated_message_differs_in_its_delivery_tag_only(
    sqlite_store_url: str, redis_broker: str, options: dict[str, Any]
) -> None:
    made = shop(sqlite_store_url, redis_broker)
    made.app.conf.accept_content = ["json", "pickle"]
    _task(made).apply_async((1, 2), **options)
    made.argus.runtime.store.clock_shift += 60_000
    assert len(dispatch(made.argus.runtime).dispatched) == 1
    client = redis.Redis.from_url(redis_broker)
    (queue,) = [key for key in client.keys("celery*") if client.type(key) == b"list"]
    first, second = (json.loads(raw) for raw in client.lrange(queue, 0, -1))
    for message in (first, second):
        del message["properties"]["delivery_tag"]
    assert first == second
    assert first["headers"][TOKEN_HEADER] == 1


@pytest.mark.rabbitmq
def test_the_native_delay_of_quorum_queues_is_left_to_the_store(sqlite_store_url: str, rabbitmq_broker: str) -> None:
    made = shop(sqlite_store_url, rabbitmq_broker)
    made.app.conf.update(task_default_queue_type="quorum", task_default_exchange_type="topic")
    made.app.conf.update(
        task_default_queue="orders", task_default_exchange="shop", task_default_routing_key="orders.in"
    )
    result = _task(made).apply_async((1, 2), countdown=2)
    stored = made.argus.runtime.store.statement(lambda connection: tasks.messages(connection, [result.id]))[result.id]
    assert (stored.exchange, stored.routing_key, stored.queue) == ("shop", "orders.in", "orders")
    with made.worker():
        assert made.ended(result.id).state is TaskState.SUCCEEDED
    assert made.log == [(1, 2)]
