"""``broker="argus://"`` as kombu and plain Celery use it: no durable tasks, real worker processes."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, chord
from celery.exceptions import TaskRevokedError
from kombu import Connection, Consumer, Exchange, Queue

from argus_celery.hooks import transport
from argus_celery.store import messages
from argus_celery.store.broker import broker
from argus_celery.store.urls import store_url_of
from tests.integration.transport_bodies import make_app


@pytest.fixture
def url(store_url: str) -> str:
    return f"argus+{store_url}"


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    with Connection(url) as connection:
        yield connection


def wait_for(fact: Callable[[], Any], within: float = 20) -> Any:
    until = time.monotonic() + within
    while not (found := fact()):
        assert time.monotonic() < until, f"not within {within} s"
        time.sleep(0.02)
    return found


def test_a_bare_url_is_a_file_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Connection("argus://") as connection:
        connection.SimpleQueue("q").put("x")
        assert connection.as_uri() == f"argus+sqlite:///{tmp_path}/argus.db"
    assert (tmp_path / "argus.db").exists()


@pytest.mark.parametrize(
    ("given", "store"),
    [
        ("argus:///a/b.db", "sqlite:////a/b.db"),
        ("argus+sqlite:////a/b.db", "sqlite:////a/b.db"),
        ("argus+postgresql+psycopg://me@host/db", "postgresql+psycopg://me@host/db"),
        ("redis://host/1", None),
        ("argus", None),
    ],
)
def test_the_url_of_the_broker_names_the_store(given: str, store: str | None) -> None:
    assert store_url_of(given) == store


def test_the_password_is_not_shown() -> None:
    connection = Connection("argus+postgresql+psycopg://me:secret@host/db")
    assert "secret" not in connection.as_uri()


def test_after_a_take_more_is_fetched_when_half_of_the_room_is_free(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "REST", 1e9)
    monkeypatch.setattr(transport, "LONGEST_REST", 60)
    queue, got = Queue("q"), []
    producer = connection.Producer()
    for number in range(20):
        producer.publish(number, routing_key="q", declare=[queue])
    channel = connection.channel()
    with Consumer(channel, [queue], on_message=got.append, prefetch_count=8):
        for _ in range(8):
            connection.drain_events(timeout=5)
        got[0].ack()
        with pytest.raises(TimeoutError):
            connection.drain_events(timeout=0.2)
        for message in got[1:4]:
            message.ack()
        for _ in range(4):
            connection.drain_events(timeout=5)
    assert [message.payload for message in got] == list(range(12))


def test_prefetch_is_respected_and_an_ack_makes_room(connection: Connection) -> None:
    queue = Queue("q")
    got: list[Any] = []
    producer = connection.Producer()
    for number in range(5):
        producer.publish(number, routing_key="q", declare=[queue])
    with Consumer(connection, [queue], callbacks=[lambda body, message: got.append(message)], prefetch_count=2):
        drain(connection)
        assert [message.payload for message in got] == [0, 1]
        got[0].ack()
        drain(connection)
        assert [message.payload for message in got] == [0, 1, 2]


def test_unacked_messages_go_back_to_the_front_when_the_connection_closes(connection: Connection, url: str) -> None:
    queue = connection.SimpleQueue("q")
    for number in range(3):
        queue.put(number)
    with Connection(url) as other:
        assert other.SimpleQueue("q").get(timeout=5).payload == 0
    assert [queue.get(timeout=5).payload for _ in range(3)] == [0, 1, 2]


def test_the_highest_priority_comes_first(connection: Connection) -> None:
    queue = connection.SimpleQueue("q", no_ack=True)
    for priority in (0, 9, 5):
        queue.put(priority, priority=priority)
    assert [queue.get(timeout=5).payload for _ in range(3)] == [9, 5, 0]


@pytest.mark.parametrize("kind", ["fanout", "topic"])
def test_every_bound_queue_gets_a_copy(connection: Connection, kind: str) -> None:
    exchange = Exchange("news", kind)
    got: list[str] = []
    queues = [Queue(name, exchange, routing_key="a.#", auto_delete=True) for name in ("one", "two")]
    consumers = [
        Consumer(connection.channel(), [queue], callbacks=[lambda body, _, name=queue.name: got.append(name + body)])
        for queue in queues
    ]
    for consumer in consumers:
        consumer.consume(no_ack=True)
    connection.Producer().publish("!", exchange=exchange, routing_key="a.b")
    drain(connection)
    assert sorted(got) == ["one!", "two!"]


def test_a_batch_of_publishes_is_one_transaction(connection: Connection, url: str) -> None:
    producer = connection.Producer()
    queue = connection.SimpleQueue("q")
    with producer.batch():
        for number in range(10):
            producer.publish(number, routing_key="q")
        assert queue.qsize() == 0
    assert queue.qsize() == 10
    with contextlib.suppress(ZeroDivisionError), producer.batch():
        producer.publish("never", routing_key="q")
        1 / 0
    assert queue.qsize() == 10


def test_a_blocked_reader_is_woken(connection: Connection, url: str) -> None:
    def put_later() -> None:
        with Connection(url) as other:
            other.SimpleQueue("q").put(time.monotonic())

    queue = connection.SimpleQueue("q", no_ack=True)
    with pytest.raises(queue.Empty):
        queue.get(timeout=0.2)
    threading.Timer(0.5, put_later).start()
    sent = queue.get(timeout=10).payload
    assert time.monotonic() - sent < 1


def test_a_server_that_is_away_is_an_operational_error() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    connection = Connection(f"argus+postgresql+psycopg://nobody@127.0.0.1:{port}/none")
    with pytest.raises(connection.connection_errors, match="cannot be reached"):
        connection.connect()


def drain(connection: Connection) -> None:
    while True:
        try:
            connection.drain_events(timeout=0.3)
        except TimeoutError:
            return


@contextmanager
def workers(url: str, folder: Path, *arguments: str, count: int = 1) -> Iterator[list[subprocess.Popen[bytes]]]:
    command = [sys.executable, "-m", "celery", "-A", "tests.integration.transport_bodies", "worker", *arguments]
    environment = os.environ | {"TRANSPORT_BROKER": url, "TRANSPORT_FOLDER": str(folder)}
    logs = [folder / f"w{number}.log" for number in range(count)]
    processes = [
        subprocess.Popen(
            [*command, "-n", f"w{number}@test", "-l", "INFO"],
            env=environment,
            stdout=log.open("wb"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        for number, log in enumerate(logs)
    ]
    try:
        wait_for(lambda: all(" ready." in log.read_text() for log in logs) or any_ended(processes), 60)
        assert not any_ended(processes), [log.read_text()[-2000:] for log in logs]
        yield processes
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(30)
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def any_ended(processes: list[subprocess.Popen[bytes]]) -> bool:
    return any(process.poll() is not None for process in processes)


@pytest.fixture
def app(url: str, tmp_path: Path) -> Iterator[Celery]:
    with make_app(url, tmp_path) as app:
        yield app


def test_plain_celery_works_whole(url: str, app: Celery, tmp_path: Path) -> None:
    tasks = app.tasks
    with workers(url, tmp_path, "-c", "2", count=2):
        assert tasks["add"].delay(1, 2).get(timeout=20) == 3
        assert tasks["add"].apply_async((1, 2), countdown=1).get(timeout=20) == 3
        assert chord([tasks["add"].s(n, n) for n in range(5)])(tasks["total"].s()).get(timeout=30) == 20
        assert set(app.control.inspect(timeout=3).ping() or ()) == {"w0@test", "w1@test"}
        revoked = tasks["add"].apply_async((1, 2), countdown=6)
        revoked.revoke()
        with pytest.raises(TaskRevokedError):
            revoked.get(timeout=20)
        # its message is acked when it would have been due
        wait_for(lambda: not any((app.control.inspect(timeout=1).scheduled() or {"?": 1}).values()))
        assert "task-succeeded" in events_of(app)
    assert messages.count(broker(store_url_of(url) or ""), "celery") == 0


def test_the_other_worker_goes_on_when_one_is_killed(url: str, app: Celery, tmp_path: Path) -> None:
    with workers(url, tmp_path, "-c", "1", count=2) as (killed, _):
        results = [app.tasks["nap"].delay(0.02) for _ in range(60)]
        wait_for(lambda: sum(result.ready() for result in results) >= 10)
        os.killpg(killed.pid, signal.SIGKILL)
        late = app.tasks["add"].delay(2, 2)
        assert late.get(timeout=20) == 4
        # one running, and what was prefetched: the rest is done
        wait_for(lambda: sum(result.ready() for result in results) >= 60 - 5)


@pytest.mark.parametrize("pool", ["threads", "solo", "gevent"])
def test_other_pools_drain_it_too(tmp_path: Path, pool: str) -> None:
    url = f"argus://{tmp_path / 'broker.db'}"
    with make_app(url, tmp_path) as app, workers(url, tmp_path, "-P", pool, "-c", "3"):
        results = [app.tasks["add"].delay(n, 1) for n in range(50)]
        assert [result.get(timeout=20) for result in results] == [n + 1 for n in range(50)]
        assert app.control.ping(timeout=3, destination=["w0@test"])


def events_of(app: Celery) -> set[str]:
    """The types of events that a listener hears until a task has succeeded."""
    seen: set[str] = set()
    with app.connection_for_read() as connection:
        receiver = app.events.Receiver(connection, handlers={"*": lambda event: seen.add(event["type"])})
        threading.Timer(1, app.tasks["add"].delay, (1, 1)).start()
        for _ in receiver.consume(timeout=20, wakeup=False):
            if "task-succeeded" in seen:
                break
    return seen
