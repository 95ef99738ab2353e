"""Tasks whose results are looked at: the same durable and ordinary, on ``argus://`` and on another backend."""

from __future__ import annotations

import threading
import time
from typing import Any

from celery import group
from celery.exceptions import Ignore, Reject
from celery.result import allow_join_result

from argus_celery import durable
from tests.integration.embedded import Shop


class OrderFailed(Exception):
    """Has arguments of its own."""

    def __init__(self, order: int, why: str) -> None:
        super().__init__(order, why)
        self.order, self.why = order, why


class Demanding(Exception):
    """Cannot be made again from its arguments."""

    def __init__(self, a: int, *, b: int) -> None:
        super().__init__(f"{a} {b}")


class Gate:
    """Bodies stop at it and say so."""

    def __init__(self) -> None:
        self.here, self.open = threading.Event(), threading.Event()

    def stop(self) -> None:
        self.here.set()
        assert self.open.wait(20)


def register(bench: Shop, *, is_durable: bool = True) -> Gate:
    app, gate = bench.app, Gate()

    def task(name: str, **options: Any) -> Any:
        def register(body: Any) -> Any:
            made = app.task(shared=False, name=f"shop.{name}", **options)(body)
            return durable(made) if is_durable else made

        return register

    @task("add")
    def add(x: Any, y: Any = 0) -> Any:
        return x + y

    @task("give")
    def give(value: Any) -> Any:
        return value

    @task("fail")
    def fail(kind: str = "order") -> None:
        if kind == "order":
            raise OrderFailed(17, "no money")
        if kind == "demanding":
            raise Demanding(1, b=2)
        if kind == "lock":
            raise ValueError(threading.Lock())
        try:
            raise KeyError("first")
        except KeyError as error:
            raise OSError("second") from error

    @task("told", bind=True)
    def told(self: Any) -> str:
        self.update_state(state="PROGRESS", meta={"done": 3})
        gate.stop()
        return "end"

    @task("started", bind=True, track_started=True)
    def started(self: Any) -> str:
        gate.stop()
        return "end"

    @task("again", bind=True, max_retries=3)
    def again(self: Any) -> int:
        if self.request.retries == 0:
            raise self.retry(exc=OrderFailed(1, "later"), countdown=3600)
        return int(self.request.retries)

    @task("parent", bind=True)
    def parent(self: Any, count: int) -> Any:
        return group(give.s(i) for i in range(count)).apply_async().id

    @task("own_end", bind=True)
    def own_end(self: Any, state: str, meta: Any) -> None:
        self.update_state(state=state, meta=meta)
        raise Ignore

    @task("refuse")
    def refuse() -> None:
        raise Reject("no")

    @task("waits")
    def waits() -> Any:
        with allow_join_result():
            return add.delay(1, 1).get(timeout=10)

    @task("slow")
    def slow(seconds: float, value: Any = None) -> Any:
        time.sleep(seconds)
        return value

    @task("silent", ignore_result=True)
    def silent() -> int:
        return 1

    return gate
