"""Messages that no Argus sent, that nobody here knows, or that came again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import redis
from celery import Celery

from argus_celery.records import TaskState
from tests.faults.ledger import wait_for
from tests.integration.workers import Bench, bench

pytestmark = pytest.mark.redis


@pytest.fixture(params=["early", "late"])
def workers(request: pytest.FixtureRequest, redis_broker: str, tmp_path: Path) -> Iterator[Bench]:
    with bench(redis_broker, tmp_path, ack=request.param) as one:
        yield one


def plain(workers: Bench) -> Celery:
    """A producer that has never heard of Argus."""
    return Celery("plain", broker=workers.setup.broker, set_as_current=False)


def test_a_message_without_a_token_is_recorded_and_runs_once(workers: Bench) -> None:
    node = workers.worker()
    for _ in range(3):
        plain(workers).send_task("slow", ("a", 0), task_id="known-id")
    wait_for(lambda: workers.find("known-id"), 5, "it is recorded")
    ended = workers.wait_ended("known-id", within=5)
    assert (ended.state, ended.project, ended.attempts) == (TaskState.SUCCEEDED, "default", 1)
    plain(workers).send_task("slow", ("a", 0), task_id="known-id")
    wait_for(lambda: node.tail().count("received") >= 4, 5, "all copies came")
    workers.wait_ended(workers.send("slow", "b", 0), within=5)
    assert len(workers.ledger.lines("start", "a")) == 1
    wait_for(lambda: _unacked(workers) == 0, 5, "the copies are acked")


def test_a_message_without_a_token_keeps_its_eta_and_compression(workers: Bench) -> None:
    workers.worker()
    due = time.time() + 3
    eta = datetime.now(UTC) + timedelta(seconds=3)
    plain(workers).send_task("slow", ("later", 0), eta=eta, compression="zlib", task_id="later-id")
    started = workers.wait("start", "later", within=10)[0]
    assert due <= started.time + 0.01
    assert started.time < due + 1.5


@pytest.mark.parametrize(
    "wrong",
    [
        {"expires": "garbage"},
        {"eta": "garbage"},
        {"id": "x" * 300},
        {"id": 12345},
        {"id": "nul\0"},
        {"root_id": "r" * 400},
    ],
)
def test_a_message_without_a_token_that_cannot_be_recorded_does_not_end_the_worker(
    workers: Bench, wrong: dict[str, object]
) -> None:
    node = workers.worker()
    app = plain(workers)
    message = app.amqp.as_task_v2("odd-id", "slow", ("odd", 0))
    with app.producer_or_acquire() as producer:
        app.amqp.send_task_message(producer, "slow", message._replace(headers={**message.headers, **wrong}))
    workers.wait_ended(workers.send("slow", "behind", 0), within=8)
    assert node.running
    assert not workers.ledger.lines("start", "odd")
    wait_for(lambda: _unacked(workers) == 0, 5, "it is off the broker")


def test_a_message_that_cannot_be_read_ends_its_task_as_failed(workers: Bench) -> None:
    workers.worker()
    app = workers.app
    task_id = app.tasks["slow"].apply_async(("pickled", 0), serializer="pickle").id
    ended = workers.wait_ended(task_id, within=8)
    assert ended.state is TaskState.FAILED
    assert ended.error is not None
    assert "cannot be read" in ended.error


def test_a_task_that_one_worker_does_not_know_runs_on_one_that_does(workers: Bench) -> None:
    node = workers.worker("old", without=("slow",))
    task_id = workers.send("slow", "new", 0)
    wait_for(lambda: "does not know the task slow" in node.tail(), 5, "the old one met it")
    assert not workers.task(task_id).state.ended
    workers.worker("new")
    assert workers.wait_ended(task_id, within=13).state is TaskState.SUCCEEDED
    assert not workers.ledger.lines("failure")


def _unacked(workers: Bench) -> int:
    return int(redis.Redis.from_url(workers.setup.broker).hlen("unacked"))
