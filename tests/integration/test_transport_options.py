"""What Celery's transport settings and options mean for durable tasks."""

from __future__ import annotations

import itertools
import json
import socket
import uuid
from collections.abc import Callable
from typing import Any

import pytest
import redis
from amqp.exceptions import FrameSyntaxError
from celery import Celery
from celery.exceptions import QueueNotFound
from kombu import Exchange, Queue
from kombu.common import Broadcast

from argus_celery.errors import BadTask
from argus_celery.flow.dispatch import dispatch
from argus_celery.records import Message, TaskState
from argus_celery.store import tasks
from tests.integration.brokers import Broker, Rabbit, Redis
from tests.integration.embedded import Shop, shop
from tests.integration.test_wire import SERIALISERS

_numbers = itertools.count(1)


def _shop(store: str, url: str, **conf: Any) -> Shop:
    made = shop(store, url, durable_tasks=["shop.*"])
    made.app.conf.update(task_default_queue=f"t{next(_numbers)}", **conf)
    log = made.log

    @made.app.task(shared=False, name="shop.note", bind=True)
    def note(self: Any, *args: Any) -> str:
        log.append(args)
        return repr(args)

    @made.app.task(shared=False, name="plain.note")
    def plain(*args: Any) -> None:
        log.append(("plain", *args))

    return made


def _embedded(store: str, **conf: Any) -> Shop:
    return _shop(store, f"argus+{store}", **conf)


def _note(made: Shop) -> Any:
    return made.app.tasks["shop.note"]


def _message(made: Shop, task_id: str) -> Message:
    found: Message = made.argus.runtime.store.statement(lambda c: tasks.messages(c, [task_id]))[task_id]
    return found


def _sweep(made: Shop) -> tuple[str, ...]:
    """Dispatch what lies with the broker for so long that it must be lost."""
    made.argus.runtime.store.clock_shift += 60_000
    return dispatch(made.argus.runtime).dispatched


# --- serialisers --------------------------------------------------------------------------------------------------


def test_arguments_of_every_serialiser_reach_the_body(sqlite_store_url: str) -> None:
    made = _embedded(sqlite_store_url, accept_content=["json", "pickle", "yaml", "msgpack", "reversed"])
    sent = [_note(made).apply_async(**{"args": (1, 2), **options}) for options in SERIALISERS.values()]
    given = [repr(tuple(options.get("args", (1, 2)))) for options in SERIALISERS.values()]
    with made.worker():
        assert [result.get(timeout=20) for result in sent] == given


def test_a_message_that_the_worker_does_not_accept_fails_its_task(sqlite_store_url: str) -> None:
    made = _embedded(sqlite_store_url, accept_content=["json"])
    result = _note(made).apply_async((1,), serializer="pickle")
    with made.worker():
        ended = made.ended(result.id)
    assert ended.state is TaskState.FAILED
    assert "cannot be read" in str(made.rows()[result.id].error)
    assert made.log == []


# --- protocol 1 ---------------------------------------------------------------------------------------------------


def test_under_protocol_1_durable_tasks_are_sent_by_protocol_2(sqlite_store_url: str) -> None:
    made = _embedded(sqlite_store_url, task_protocol=1)
    broker = f"argus+{sqlite_store_url}"
    result = _note(made).apply_async((1,), countdown=0.1, link=made.app.tasks["plain.note"].si("linked"))
    made.app.tasks["plain.note"].delay("first")
    assert made.app.conf.broker_url == broker
    assert _message(made, result.id).headers["task"] == "shop.note"
    with made.worker():
        assert made.ended(result.id).state is TaskState.SUCCEEDED
        made.until_logged(("plain", "linked"), ("plain", "first"))
    assert made.log.count((1,)) == 1


def test_a_message_of_protocol_1_is_adopted_and_repeated_until_it_has_run(sqlite_store_url: str) -> None:
    made = _embedded(sqlite_store_url)
    old = Celery("old", broker=made.app.conf.broker_url, set_as_current=False)
    old.conf.update(task_protocol=1, task_default_queue=made.app.conf.task_default_queue)
    for _ in range(2):
        old.send_task("shop.note", ("old",), task_id="of-protocol-1")
    with made.worker():
        assert made.ended_once_known("of-protocol-1").state is TaskState.SUCCEEDED
    assert made.log == [("old",)]
    # had it been lost, this is what would have been sent again
    assert _message(made, "of-protocol-1").headers == {}


# --- routes -------------------------------------------------------------------------------------------------------


def _by_function(name: str, args: Any, kwargs: Any, options: Any, task: Any = None, **_: Any) -> Any:
    return {"queue": "chosen", "priority": 4} if name == "shop.note" else None


@pytest.mark.parametrize(
    "routes", [{"shop.note": "chosen"}, {"shop.*": {"queue": "chosen"}}, _by_function], ids=["name", "glob", "function"]
)
def test_task_routes_decide_where_a_task_waits_and_goes(sqlite_store_url: str, routes: Any) -> None:
    made = _embedded(sqlite_store_url, task_routes=routes)
    result = _note(made).delay(1)
    assert (_message(made, result.id).queue, made.lease(result.id).queue) == ("chosen", "chosen")
    with made.worker(queues=["chosen"]):
        assert made.ended(result.id).state is TaskState.SUCCEEDED


def test_a_queue_that_is_not_to_be_made_is_refused_and_nothing_recorded(sqlite_store_url: str) -> None:
    made = _embedded(sqlite_store_url, task_create_missing_queues=False)
    with pytest.raises(QueueNotFound):
        _note(made).apply_async((1,), queue="nowhere")
    assert made.rows() == {}


@pytest.mark.parametrize("how", ["route", "call"])
def test_a_durable_task_is_refused_on_a_broadcast_queue(sqlite_store_url: str, how: str) -> None:
    made = _embedded(sqlite_store_url)
    made.app.conf.task_queues = [Queue("t"), Broadcast("everyone")]
    if how == "route":
        made.app.conf.task_routes = {"*.note": {"queue": "everyone"}}
    options = {} if how == "route" else {"queue": "everyone"}
    with pytest.raises(BadTask, match=r"shop\.note is durable and runs once, but the broadcast queue 'everyone'"):
        _note(made).apply_async((1,), **options)
    assert made.rows() == {}
    made.app.tasks["plain.note"].apply_async((1,), **options)


def test_another_process_repeats_a_message_with_the_queue_of_its_call(sqlite_store_url: str, broker: Broker) -> None:
    made, other = (_shop(sqlite_store_url, broker.url) for _ in range(2))
    other.app.main = made.app.main
    own = Queue("narrow", Exchange("narrow", type="topic"), routing_key="narrow.#", max_length=9)
    result = _note(made).apply_async((1,), queue=own, routing_key="narrow.way")
    assert len(broker.lose(made.app, "narrow")) == 1
    assert _sweep(other) == (result.id,)
    assert len(broker.lose(other.app, "narrow")) == 1


def test_an_exchange_of_a_call_leads_to_the_queue_that_is_bound_to_it(sqlite_store_url: str, broker: Broker) -> None:
    made = _shop(sqlite_store_url, broker.url)
    delta = Queue("delta", Exchange("rivers", type="topic"), routing_key="river.#")
    made.app.conf.task_queues = [Queue(made.app.conf.task_default_queue), delta]
    result = _note(made).apply_async((1,), exchange="rivers", routing_key="river.po")
    assert made.lease(result.id).queue == "delta"
    assert len(broker.lose(made.app, "delta")) == 1


@pytest.mark.rabbitmq
def test_a_headers_exchange_routes_a_message_and_its_repeat(sqlite_store_url: str, rabbitmq_place: str) -> None:
    made, broker = _shop(sqlite_store_url, rabbitmq_place), Rabbit(rabbitmq_place)
    blue = Queue("blue", Exchange("colours", type="headers"), binding_arguments={"x-match": "all", "colour": "blue"})
    made.app.conf.task_queues = [Queue(made.app.conf.task_default_queue), blue]
    result = _note(made).apply_async((1,), queue="blue", headers={"colour": "blue"})
    first = broker.lose(made.app, "blue")
    assert _sweep(made) == (result.id,)
    assert broker.lose(made.app, "blue") == first
    assert len(first) == 1


@pytest.mark.redis
def test_after_a_flush_of_redis_a_topic_still_leads_to_its_queue(sqlite_store_url: str, redis_broker: str) -> None:
    made, broker = _shop(sqlite_store_url, redis_broker), Redis(redis_broker)
    delta = Queue("delta", Exchange("rivers", type="topic"), routing_key="river.#")
    made.app.conf.task_queues = [Queue(made.app.conf.task_default_queue), delta]
    result = _note(made).apply_async((1,), queue="delta", routing_key="river.po")
    redis.Redis.from_url(redis_broker).flushdb()
    assert _sweep(made) == (result.id,)
    assert len(broker.lose(made.app, "delta")) == 1


# --- urgency and time ---------------------------------------------------------------------------------------------


def test_what_waits_in_the_store_goes_out_in_the_brokers_order_of_priorities(
    sqlite_store_url: str, broker: Broker
) -> None:
    made = _shop(sqlite_store_url, broker.url, task_queue_max_priority=10)
    with made.argus.project("all") as project:
        project.pause()
    for number in (3, 9, 1):
        _note(made).apply_async((number,), priority=number, argus_project="all")
    project.resume()
    order = [made.rows()[task_id] for task_id in dispatch(made.argus.runtime).dispatched]
    assert [row.priority for row in order] == ([-1, -3, -9] if isinstance(broker, Redis) else [9, 3, 1])
    with made.worker(concurrency=1, prefetch_multiplier=1):
        made.drained()
    assert sorted(made.log) == [(1,), (3,), (9,)]


@pytest.mark.redis
def test_priority_steps_of_redis_hold_for_a_message_and_its_repeat(sqlite_store_url: str, redis_broker: str) -> None:
    options = {"priority_steps": [0, 5, 9], "sep": ":", "queue_order_strategy": "priority"}
    made = _shop(sqlite_store_url, redis_broker, broker_transport_options=options)
    queue, client = made.app.conf.task_default_queue, redis.Redis.from_url(redis_broker)
    result = _note(made).apply_async((1,), priority=6)
    assert client.lpop(f"{queue}:5") is not None
    assert _sweep(made) == (result.id,)
    assert client.llen(f"{queue}:5") == 1


def test_the_brokers_expiration_is_judged_by_the_store(sqlite_store_url: str) -> None:
    made = _embedded(sqlite_store_url)
    result = _note(made).apply_async((1,), expiration=30)
    assert _sweep(made) == ()
    assert made.task(result.id).state is TaskState.EXPIRED


# --- connections --------------------------------------------------------------------------------------------------


def _dead_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


URLS: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "a text of two": lambda dead, live: {"broker_url": f"{dead};{live}"},
    "a list": lambda dead, live: {"broker_url": [dead, live]},
    "for reading and for writing": lambda dead, live: {
        "broker_url": dead,
        "broker_write_url": live,
        "broker_read_url": live,
    },
}


@pytest.mark.redis
@pytest.mark.parametrize("urls", URLS)
def test_the_broker_that_is_there_is_found_among_several(sqlite_store_url: str, redis_broker: str, urls: str) -> None:
    made = _shop(sqlite_store_url, redis_broker)
    made.app.conf.update(URLS[urls](f"redis://127.0.0.1:{_dead_port()}/0", redis_broker))
    result = _note(made).delay(1)
    client = redis.Redis.from_url(redis_broker)
    assert client.llen(made.app.conf.task_default_queue) == 1
    with made.worker():
        assert made.ended(result.id).state is TaskState.SUCCEEDED


@pytest.mark.redis
def test_a_key_prefix_of_redis_is_kept(sqlite_store_url: str, redis_broker: str) -> None:
    made = _shop(sqlite_store_url, redis_broker, broker_transport_options={"global_keyprefix": "shop:"})
    result = _note(made).delay(1)
    queue, client = f"shop:{made.app.conf.task_default_queue}", redis.Redis.from_url(redis_broker)
    assert json.loads(client.lpop(queue))["headers"]["id"] == result.id
    assert _sweep(made) == (result.id,)
    assert client.llen(queue) == 1
    with made.worker():
        assert made.ended(result.id).state is TaskState.SUCCEEDED


@pytest.mark.rabbitmq
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_confirmed_publishes_reach_queues_with_options(sqlite_store_url: str, rabbitmq_place: str, kind: str) -> None:
    made = _shop(sqlite_store_url, rabbitmq_place, broker_transport_options={"confirm_publish": True})
    arguments = {"x-queue-type": kind, **({"x-max-priority": 5} if kind == "classic" else {})}
    queue = Queue(f"with-{kind}", Exchange("x", type="topic"), routing_key="y", queue_arguments=arguments)
    made.app.conf.update(task_queues=[queue], task_default_queue=queue.name, worker_detect_quorum_queues=True)
    sent = [_note(made).apply_async((number,), priority=number) for number in range(3)]
    assert len(Rabbit(rabbitmq_place).lose(made.app, queue.name)) == 3
    assert set(_sweep(made)) == {result.id for result in sent}
    with made.worker():
        assert {made.ended(result.id).state for result in sent} == {TaskState.SUCCEEDED}
    assert sorted(made.log) == [(0,), (1,), (2,)]


@pytest.mark.rabbitmq
def test_a_message_that_rabbitmq_does_not_take_keeps_no_other_back(
    sqlite_store_url: str, rabbitmq_place: str, caplog: pytest.LogCaptureFixture
) -> None:
    made, broker = _shop(sqlite_store_url, rabbitmq_place), Rabbit(rabbitmq_place)
    with made.app.connection_for_write() as connection:
        Queue("clash", max_priority=5)(connection.default_channel).declare()
    with made.argus.project("all") as project:
        project.pause()
        sent = [_note(made).apply_async((1,)) for _ in range(3)]
        clash = _note(made).apply_async((1,), queue="clash")
    project.resume()
    assert len(dispatch(made.argus.runtime).dispatched) == 4
    assert len(broker.lose(made.app, made.app.conf.task_default_queue)) >= len(sent)
    assert f"the broker does not take {clash.id} (queue 'clash')" in caplog.text
    assert made.task(clash.id).state is TaskState.WAITING
    assert {made.task(result.id).state for result in sent} == {TaskState.QUEUED}


@pytest.mark.rabbitmq
def test_headers_that_rabbitmq_cannot_carry_are_refused_and_nothing_recorded(
    sqlite_store_url: str, rabbitmq_place: str
) -> None:
    made = _shop(sqlite_store_url, rabbitmq_place)
    with pytest.raises(FrameSyntaxError):
        _note(made).apply_async((1,), headers={"id-of": uuid.uuid4()})
    assert made.rows() == {}


def test_an_id_of_the_callers_own_is_kept(sqlite_store_url: str) -> None:
    made, own = _embedded(sqlite_store_url), str(uuid.uuid4())
    assert _note(made).apply_async((1,), task_id=own).id == own
    assert list(made.rows()) == [own]
