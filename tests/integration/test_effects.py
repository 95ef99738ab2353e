"""The examples of docs/effects.md, run against real servers: what a run does that loses its lease happens once."""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
import sqlalchemy as sa
from sqlalchemy.orm import Session

from argus_celery import current, durable
from argus_celery.errors import LeaseLost
from argus_celery.flow.dispatch import dispatch
from argus_celery.store import setup
from argus_celery.store.schema import leases
from tests.integration.embedded import Shop, shop

PAGE = (Path(__file__).parents[2] / "docs" / "effects.md").read_text()


def example(title: str, made: Shop, **names: Any) -> Any:
    """The task that the example under this title defines; its names are those of the test."""
    code = re.search(rf"^## {title}\n.*?^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert code is not None
    before = set(made.app.tasks)
    app = SimpleNamespace(task=partial(made.app.task, shared=False))
    known = {"__name__": made.app.main, "app": app, "current": current, "durable": durable, "LeaseLost": LeaseLost}
    exec(code[1], {**known, **names})
    (name,) = set(made.app.tasks) - before
    return made.app.tasks[name]


@pytest.fixture
def made(sqlite_store_url: str) -> Iterator[Shop]:
    made = shop(sqlite_store_url, f"argus+{sqlite_store_url}")
    setup.init(made.argus.runtime.store)
    yield made
    made.argus.runtime.store.dispose()


def take_away(made: Shop) -> None:
    """The lease of the one task that runs has lapsed: it goes to another run."""
    lapsed = sa.update(leases).values(eligible_at=0)
    made.argus.runtime.store.statement(lambda connection: connection.execute(lapsed))
    dispatch(made.argus.runtime)


@dataclass
class First:
    """What is done once, at the first call; and whether that is over."""

    act: Callable[[], None]
    lock: Any = field(default_factory=threading.Lock)
    done: bool = False

    def __call__(self) -> None:
        with self.lock:
            first, self.done = not self.done, True
        if first:
            self.act()


@contextmanager
def serving(answer: Callable[[str, str, dict[str, str], bytes], tuple[int, dict[str, str], bytes]]) -> Iterator[str]:
    """A server on loopback; gives its address."""

    class Handler(BaseHTTPRequestHandler):
        def _do(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, headers, body = answer(self.command, self.path, dict(self.headers), data)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body if self.command != "HEAD" else b"")

        do_GET = do_POST = do_PUT = do_HEAD = _do

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def run(made: Shop, task: Any, *args: Any) -> Any:
    """Two runs may be under way at once."""
    called = task.delay(*args)
    with made.worker(concurrency=2):
        made.drained()
    return called


def test_a_charge_is_made_once_though_the_run_that_made_it_never_heard_of_it(made: Shop) -> None:
    charges: dict[str, bytes] = {}
    asked: list[str] = []
    first = First(lambda: take_away(made))

    def answer(_method: str, _path: str, headers: dict[str, str], _data: bytes) -> tuple[int, dict[str, str], bytes]:
        key = headers["Idempotency-Key"]
        asked.append(key)
        charges.setdefault(key, json.dumps({"id": f"ch_{len(charges) + 1}"}).encode())
        first()
        return 201, {}, charges[key]

    with serving(answer) as address:
        charge = example("An HTTP API", made, json=json, urllib=urllib, API=f"http://{address}")
        called = run(made, charge, "order-17", 4200)
    assert asked == [called.id] * 2
    assert list(charges) == [called.id]
    assert called.get(timeout=5) == "ch_1"


def test_an_older_run_does_not_write_over_the_object_of_a_newer_one(made: Shop) -> None:
    objects: dict[str, tuple[str, dict[str, str], bytes]] = {}
    answers: list[tuple[int, str]] = []
    newer_is_there, lock = threading.Event(), threading.Lock()

    def wait_for_the_newer() -> None:
        take_away(made)
        assert newer_is_there.wait(20)

    first = First(wait_for_the_newer)

    def answer(method: str, path: str, headers: dict[str, str], data: bytes) -> tuple[int, dict[str, str], bytes]:
        there = objects.get(path)
        if method == "HEAD":
            first()  # what the first run finds is old when it hears of it
            return (200, {"ETag": there[0], **there[1]}, b"") if there else (404, {}, b"")
        with lock:
            there = objects.get(path)
            fits = headers.get("If-Match") == there[0] if there else headers.get("If-None-Match") == "*"
            token = headers["x-amz-meta-argus-token"]
            answers.append((200 if fits else 412, token))
            if not fits:
                return 412, {}, b""
            objects[path] = (hashlib.md5(data).hexdigest(), {"x-amz-meta-argus-token": token}, data)
        newer_is_there.set()
        return 200, {}, b""

    with serving(answer) as address:

        def call(method: str, path: str, data: bytes = b"", headers: Any = None) -> tuple[int, Any]:
            connection = http.client.HTTPConnection(address, timeout=30)
            connection.request(method, path, data, headers or {})
            answer = connection.getresponse()
            answer.read()
            connection.close()
            return answer.status, answer.headers

        render = example("An object store", made, call=call, picture=lambda: str(current.token).encode())
        run(made, render, "/pictures/1.png")
    assert answers == [(200, "4"), (412, "2")]
    assert objects["/pictures/1.png"][2] == b"4"


@pytest.mark.redis
def test_an_older_run_does_not_write_over_the_value_of_a_newer_one(made: Shop, redis_url: str) -> None:
    client: Any = redis.Redis.from_url(redis_url, decode_responses=True)
    newer_is_there = threading.Event()

    def wait_for_the_newer() -> None:
        take_away(made)
        assert newer_is_there.wait(20)

    first = First(wait_for_the_newer)

    def compute() -> int:
        first()
        return int(current.token or 0)

    forecast = example("Redis", made, client=client, compute=compute)
    forecast.after_return = lambda *_: newer_is_there.set()
    called = run(made, forecast)
    assert client.hgetall(f"forecast:{called.id}") == {"token": "4", "value": "4"}


def test_a_session_of_the_users_commits_nothing_of_a_run_that_lost_its_lease(made: Shop) -> None:
    engine = sa.create_engine(str(made.argus.settings.store_url))
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE orders (id INTEGER PRIMARY KEY, state VARCHAR(20), by_token INTEGER)")
        connection.exec_driver_sql("INSERT INTO orders VALUES (17, 'new', 0)")
    tokens: list[int | None] = []
    first = First(lambda: take_away(made))

    def text(statement: str) -> Any:
        first()
        tokens.append(current.token)
        return sa.text(statement.replace("SET", f"SET by_token = by_token + {current.token},"))

    book = example("A session of your own", made, Session=Session, engine=engine, text=text)
    run(made, book, 17)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT state, by_token FROM orders").one() == ("booked", 4)
    assert tokens == [2, 4]
    engine.dispose()


def test_a_row_in_another_database_is_written_once(made: Shop, tmp_path: Path) -> None:
    crm = sa.create_engine(f"sqlite:///{tmp_path / 'crm.db'}")
    with crm.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE argus_done (task_id VARCHAR(255) PRIMARY KEY)")
        connection.exec_driver_sql("CREATE TABLE customers (name VARCHAR(20), orders INTEGER)")
        connection.exec_driver_sql("INSERT INTO customers VALUES ('ada', 0)")
    first, runs = First(lambda: take_away(made)), []

    def text(statement: str) -> Any:
        if "INSERT" in statement:
            runs.append(current.token)
            first()
        return sa.text(statement)

    count = example("Another database", made, crm=crm, text=text)
    run(made, count, "ada")
    with crm.connect() as connection:
        assert connection.exec_driver_sql("SELECT orders FROM customers").scalar_one() == 1
    assert runs == [2, 4]
    crm.dispose()
