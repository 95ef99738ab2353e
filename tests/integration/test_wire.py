"""A durable message is Celery's own, in every serialiser and on every route, and each repeat is the same bytes."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import json
import uuid
from typing import Any

import pytest
from celery import Celery
from kombu import Exchange, Queue
from kombu.serialization import register

from argus_celery.flow.dispatch import dispatch
from argus_celery.records import TOKEN_HEADER, Dispatch, TaskState
from argus_celery.store import tasks
from tests.integration.brokers import Broker, as_of_celery, headers_of
from tests.integration.embedded import Shop, shop

register("reversed", lambda x: json.dumps(x)[::-1], lambda x: json.loads(x[::-1]), "application/x-reversed", "utf-8")

PAST = dt.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=dt.UTC)
FUTURE = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
TYPES = (b"\x00\xff", PAST, decimal.Decimal("1.10"), uuid.UUID(int=7), "ünïcode ☃", None, 2.5, {"deep": [1]})
TOPIC, FANOUT = Exchange("rivers", type="topic"), Exchange("sky", type="fanout")
DELTA, RAIN = Queue("delta", TOPIC, routing_key="river.#"), Queue("rain", FANOUT)

SERIALISERS: dict[str, dict[str, Any]] = {
    "json": {"args": TYPES},
    "pickle": {"args": (*TYPES, {1, 2}), "serializer": "pickle"},
    "yaml": {"serializer": "yaml"},
    "msgpack": {"args": (b"\x00\xff", "☃", 2.5), "serializer": "msgpack"},
    "custom": {"serializer": "reversed"},
    "zlib": {"compression": "zlib"},
    "gzip": {"compression": "gzip"},
    "bzip2": {"compression": "bzip2", "serializer": "pickle"},
    "lzma": {"compression": "lzma"},
    "zstd": {"compression": "zstd"},
}
OPTIONS: dict[str, dict[str, Any]] = {
    "headers": {"headers": {"trace": "x", "when": PAST.replace(microsecond=0), "raw": b"x", "list": [1, True, None]}},
    "properties": {"app_id": "shop", "message_id": "m", "user_id": "guest", "type": "t", "reply_to": "me"},
    "priority": {"priority": 3},
    "transient": {"delivery_mode": 1},
    "transient by name": {"delivery_mode": "transient"},
    "eta": {"eta": PAST},
    "expires": {"expires": FUTURE},
    "expiration": {"expiration": 3600},
    "long arguments": {"args": ["x" * 5000], "kwargs": {"k": "y" * 5000}},
    "given representations": {"argsrepr": "(secret)", "kwargsrepr": "{}", "shadow": "other", "origin": "me@here"},
    "times and results": {"time_limit": 9, "soft_time_limit": 8, "ignore_result": True, "retries": 2},
    "stamps": {"stamped_headers": ["tenant"], "tenant": "a"},
}
ROUTES: dict[str, dict[str, Any]] = {
    "a queue that nobody named": {"queue": "elsewhere"},
    "a queue object": {"queue": Queue("own", Exchange("own"), routing_key="own", max_length=9)},
    "a topic": {"queue": "delta", "routing_key": "river.rhine"},
    "a topic by name": {"exchange": "rivers", "routing_key": "river.po", "declare": [DELTA]},
    "a fanout": {"queue": "rain"},
}
HEADERS = Queue(
    "blue", Exchange("colours", type="headers"), binding_arguments={"x-match": "all", "colour": "blue"}, max_priority=5
)
_numbers = itertools.count(1)


def _settled(app: Celery, queue: str) -> Celery:
    app.conf.update(task_default_queue=queue, accept_content=["json", "pickle", "yaml", "msgpack", "reversed"])

    @app.task(shared=False, name="shop.add")
    def add(*args: Any, **kwargs: Any) -> str:
        return repr((args, kwargs))

    return app


def _shop(store: str, broker: Broker) -> Shop:
    made = shop(store, broker.url, durable_tasks=["shop.*"])
    _settled(made.app, f"q{next(_numbers)}")
    return made


def _plain(like: Shop) -> Celery:
    app = Celery("plain", broker=like.app.conf.broker_url, backend="disabled", set_as_current=False)
    app.conf.update(task_queues=like.app.conf.task_queues)
    return _settled(app, like.app.conf.task_default_queue)


def _send(app: Celery, task_id: str, options: dict[str, Any]) -> None:
    options = {"args": (1, 2), **options, "task_id": task_id}
    app.tasks["shop.add"].apply_async(**options)


def _told_twice(made: Shop, broker: Broker, queue: str, options: dict[str, Any]) -> Any:
    """Send it, lose it, dispatch it again and lose that: one message, which comes again as it was."""
    task_id = str(uuid.uuid4())
    plain = _plain(made)
    _send(plain, task_id, options)
    (celerys,) = broker.lose(plain, queue)
    _send(made.app, task_id, options)
    if "eta" in options:
        dispatch(made.argus.runtime)  # the store's clock says that it is past
    (first,) = broker.lose(made.app, queue)
    made.argus.runtime.store.clock_shift += 60_000
    assert dispatch(made.argus.runtime).dispatched == (task_id,)
    (second,) = broker.lose(made.app, queue)
    assert second == first
    assert headers_of(first)[TOKEN_HEADER] == 1
    assert as_of_celery(first) == as_of_celery(celerys)
    return first


@pytest.mark.parametrize("case", [*SERIALISERS, *OPTIONS])
def test_a_message_is_celerys_own_and_is_repeated_as_it_was(sqlite_store_url: str, broker: Broker, case: str) -> None:
    made = _shop(sqlite_store_url, broker)
    _told_twice(made, broker, made.app.conf.task_default_queue, {**SERIALISERS, **OPTIONS}[case])


@pytest.mark.parametrize("case", ROUTES)
def test_a_message_takes_celerys_route_each_time(sqlite_store_url: str, broker: Broker, case: str) -> None:
    made = _shop(sqlite_store_url, broker)
    queue = {"a queue that nobody named": "elsewhere", "a queue object": "own", "a fanout": "rain"}.get(case, "delta")
    made.app.conf.task_queues = [Queue(made.app.conf.task_default_queue), DELTA, RAIN]
    if case == "a fanout" and broker.url.startswith("redis"):
        pytest.skip("Redis keeps no message of a fanout")
    _told_twice(made, broker, queue, ROUTES[case])


@pytest.mark.parametrize(
    "case", ["json", "pickle", "zlib", "lzma", "custom", "headers", "properties", "priority", "stamps"]
)
def test_an_adopted_message_is_stored_as_it_came(sqlite_store_url: str, broker: Broker, case: str) -> None:
    made, task_id = _shop(sqlite_store_url, broker), str(uuid.uuid4())
    plain, queue = _plain(made), made.app.conf.task_default_queue
    _send(plain, task_id, {**SERIALISERS, **OPTIONS}[case])
    (celerys,) = broker.lose(plain, queue)
    _send(plain, task_id, {**SERIALISERS, **OPTIONS}[case])
    with made.worker():
        assert made.ended_once_known(task_id).state is TaskState.SUCCEEDED
    stored = made.argus.runtime.store.statement(lambda connection: tasks.messages(connection, [task_id]))[task_id]
    assert made.argus.publisher([Dispatch(task_id, 1, stored)]) == ()
    (repeated,) = broker.lose(made.app, queue)
    assert as_of_celery(repeated) == as_of_celery(celerys)


def test_what_a_project_enqueues_at_once_is_repeated_as_it_was(sqlite_store_url: str, broker: Broker) -> None:
    made = _shop(sqlite_store_url, broker)
    queue, add = made.app.conf.task_default_queue, made.app.tasks["shop.add"]
    signatures = [add.s(number).set(compression="zlib", priority=number % 3) for number in range(5)]
    results = made.argus.project("all").enqueue_many(signatures)
    first = broker.lose(made.app, queue)
    made.argus.runtime.store.clock_shift += 60_000
    assert set(dispatch(made.argus.runtime).dispatched) == {result.id for result in results}
    assert sorted(map(str, broker.lose(made.app, queue))) == sorted(map(str, first))
    assert len(first) == 5
