"""How a task whose body is ``async def`` is made and called: its ways are those of any other task."""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Task
from pydantic import BaseModel

from argus_celery import current, durable
from argus_celery.errors import HookError, LeaseLost, StoreUnavailable
from argus_celery.records import TaskState
from argus_celery.store import setup
from tests.integration.embedded import Shop, shop


@pytest.fixture
def made(sqlite_store_url: str) -> Iterator[Shop]:
    made = shop(sqlite_store_url, f"argus+{sqlite_store_url}")
    setup.init(made.argus.runtime.store)
    yield made
    made.argus.runtime.store.dispose()


class Order(BaseModel):
    number: int


class Receipt(BaseModel):
    number: int
    paid: bool


def copied(fun: Any) -> Any:
    """A mark on it is none on the other."""
    return types.FunctionType(fun.__code__, fun.__globals__, fun.__name__)


def ways(made: Shop) -> dict[str, tuple[Any, tuple[Any, ...], Any]]:
    """Each way of making a task: the task, its arguments, its result."""
    app = made.app

    async def add(x: int, y: int) -> int:
        await asyncio.sleep(0)
        return x + y

    async def flaky(self: Any, tag: str) -> str:
        await asyncio.sleep(0)
        if self.request.retries < 2:
            raise OSError(tag)
        return f"{tag}{self.request.retries}"

    retries: dict[str, Any] = {"autoretry_for": (OSError,), "default_retry_delay": 0}

    class Base(Task):
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            made.log.append(self.name)
            return super().__call__(*args, **kwargs)

        def on_success(self, retval: Any, *_: Any) -> None:
            made.log.append(retval)

    @durable
    class Kind(Task):
        name = "kind"

        async def run(self, x: int) -> int:
            return await self.twice(x)

        async def twice(self, x: int) -> int:
            await asyncio.sleep(0)
            return 2 * x

    @durable
    class Above(Kind):
        name = "above"

        async def run(self, x: int) -> int:
            return await super().run(x) + 1

    @durable
    class Persistent(Task):
        name, default_retry_delay, autoretry_for = "persistent", 0, (OSError,)
        run = copied(flaky)

    def decorated(fun: Any) -> Any:
        @functools.wraps(fun)
        def call(*args: Any) -> Any:
            return fun(*args)

        return call

    async def pay(order: Order) -> Receipt:
        await asyncio.sleep(0)
        return Receipt(number=order.number, paid=True)

    def task(fun: Any, name: str, **options: Any) -> Any:
        return app.task(fun, name=name, shared=False, **options)

    app.conf.argus_durable_tasks = ["by_name"]
    return {
        "plain": (durable(task(add, "plain")), (1, 2), 3),
        "decorator below": (task(durable(copied(add)), "below"), (1, 2), 3),
        "by name": (task(add, "by_name"), (1, 2), 3),
        "evaluated": (durable(task(add, "evaluated", lazy=False)), (1, 2), 3),
        "autoretry": (durable(task(flaky, "autoretry", bind=True, **retries)), ("a",), "a2"),
        "autoretry, evaluated": (durable(task(flaky, "auto", bind=True, lazy=False, **retries)), ("a",), "a2"),
        "autoretry, decorator below": (task(durable(copied(flaky)), "auto_below", bind=True, **retries), ("a",), "a2"),
        "decorated": (durable(task(decorated(add), "decorated")), (1, 2), 3),
        "base": (durable(task(add, "base", base=Base)), (1, 2), 3),
        "pydantic": (
            durable(task(pay, "pydantic", pydantic=True)),
            ({"number": 7},),
            {"number": 7, "paid": True},
        ),
        "class": (app.register_task(Kind()), (4,), 8),
        "subclass": (app.register_task(Above()), (4,), 9),
        "class with autoretry": (app.register_task(Persistent()), ("c",), "c2"),
    }


def test_a_worker_runs_it_however_it_was_made(made: Shop) -> None:
    all_ways = ways(made)
    results = {way: task.delay(*args) for way, (task, args, _) in all_ways.items()}
    with made.worker(concurrency=2):
        got = {way: result.get(timeout=20) for way, result in results.items()}
    assert got == {way: expected for way, (_, _, expected) in all_ways.items()}
    assert made.log == ["base", 3]


def test_an_eager_call_gives_the_value(made: Shop) -> None:
    for way, (task, args, expected) in ways(made).items():
        assert (way, task.apply(args).result) == (way, expected)
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(made.app.conf, "task_always_eager", True)
            assert (way, task.delay(*args).result) == (way, expected)
    assert made.rows() == {}


def test_a_direct_call_gives_the_coroutine(made: Shop) -> None:
    all_ways = ways(made)
    for way, (task, args, expected) in all_ways.items():
        if "autoretry" not in way:
            called = task(*args)
            assert inspect.iscoroutine(called), way
            assert (way, asyncio.run(called)) == (way, expected)
    with pytest.raises(OSError):
        asyncio.run(all_ways["autoretry"][0]("a"))


def test_an_eager_call_in_a_running_loop_gives_the_value_too(made: Shop) -> None:
    @durable
    @made.app.task(name="inner", shared=False)
    async def task(x: int, y: int) -> int:
        await asyncio.sleep(0)
        return x + y

    @durable
    @made.app.task(name="outer", shared=False)
    async def outer() -> int:
        await asyncio.sleep(0)
        return int(task.apply((1, 2)).result + await task(3, 4))

    async def elsewhere() -> Any:
        return outer.apply().result

    assert asyncio.run(elsewhere()) == 10


def test_a_coroutine_task_that_is_not_durable_is_left_to_celery(made: Shop) -> None:
    @made.app.task(name="plain", shared=False)
    async def plain() -> None: ...

    called = plain.apply().result
    assert inspect.iscoroutine(called)
    called.close()


def test_a_body_that_is_not_seen_to_be_a_coroutine_function_fails_with_what_to_do(made: Shop) -> None:
    @durable
    @made.app.task(name="hidden", shared=False)
    def hidden() -> Any:
        return asyncio.sleep(0)

    result = hidden.delay()
    with made.worker():
        ended = made.ended(result.id)
    assert ended.state is TaskState.FAILED
    assert "make its body an async def" in (ended.error or "")


def test_map_starmap_and_chunks_give_the_values(made: Shop) -> None:
    made.app.conf.argus_durable_tasks = ["argus.*"]
    add = ways(made)["plain"][0]

    @durable
    @made.app.task(name="double", shared=False)
    async def double(x: int) -> int:
        await asyncio.sleep(0)
        return 2 * x

    mapped, starred = double.map([1, 2]).delay(), add.starmap([(1, 2), (3, 4)]).delay()
    chunked = add.chunks([(1, 2), (3, 4), (5, 6)], 2).group().delay()
    with made.worker():
        assert (mapped.get(timeout=20), starred.get(timeout=20)) == ([2, 4], [3, 7])
        assert chunked.get(timeout=20) == [[3, 7], [11]]


def test_a_body_that_meets_an_outage_of_the_store_or_a_lost_lease_is_no_failure(made: Shop) -> None:
    @durable
    @made.app.task(name="meets", shared=False)
    async def meets(error: str) -> str:
        await asyncio.sleep(0)
        made.log.append(error)
        if made.log.count(error) == 1:
            raise {"away": StoreUnavailable, "lost": LeaseLost}[error](error)
        return "done"

    away, lost = meets.delay("away"), meets.delay("lost")
    with made.worker():
        assert (away.get(timeout=20), lost.get(timeout=20)) == ("done", "done")
    assert [(made.task(one.id).attempts, made.task(one.id).state) for one in (away, lost)] == [
        (2, TaskState.SUCCEEDED)
    ] * 2
    assert made.task(away.id).losses == 0


def test_a_run_that_looks_at_its_claim_is_told_what_it_is_in_each_of_its_tasks(made: Shop) -> None:
    @durable
    @made.app.task(name="looking", shared=False)
    async def looking() -> list[Any]:
        async def look() -> Any:
            await asyncio.sleep(0)
            return current.task_id, current.token, current.project, current.attempt

        return [await look(), *await asyncio.gather(look(), asyncio.create_task(look()))]

    result = made.argus.project("p").enqueue(looking.s())
    with made.worker():
        assert result.get(timeout=20) == [[result.id, 2, "p", 1]] * 3


def test_steps_of_a_coroutine_go_on_where_the_last_run_stopped(made: Shop) -> None:
    async def fetch(url: str) -> str:
        await asyncio.sleep(0)
        made.log.append(url)
        return url

    @durable
    @made.app.task(bind=True, name="crawl", shared=False)
    async def crawl(self: Any, urls: list[str]) -> list[str]:
        first = await asyncio.gather(*(current.step(f"fetch {url}", fetch, url) for url in urls))
        async for url in current.each(urls, batch=2):
            await current.step("index", fetch, f"{url}!")
            if url == "b" and self.request.retries == 0:
                raise self.retry(countdown=0)
        return first

    result = crawl.delay([*"abcd"])
    with made.worker():
        assert result.get(timeout=20) == [*"abcd"]
    assert sorted(made.log) == ["a", "a!", "b", "b!", "c", "c!", "d", "d!"]


def test_a_project_is_enqueued_to_from_inside_as_from_any_body(made: Shop) -> None:
    add = ways(made)["plain"][0]

    @durable
    @made.app.task(bind=True, name="parent", shared=False)
    async def parent(self: Any) -> list[str]:
        project = await made.argus.aproject("inner")
        ids = [(await project.aenqueue(add.s(1, 2), key=f"k{number}")).id for number in range(2)]
        return [*ids, add.delay(3, 4).id]

    result = parent.delay()
    with made.worker():
        children = result.get(timeout=20)
        made.drained()
    assert {made.rows()[child].parent_id for child in children} == {result.id}
    assert all(child[14] == "5" for child in children)  # derived, so that a run that is repeated enqueues each once


def test_under_eventlet_it_fails_and_says_so(made: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    patched = types.SimpleNamespace(is_monkey_patched=lambda name: name == "thread")
    monkeypatch.setitem(sys.modules, "eventlet.patcher", patched)
    with pytest.raises(HookError, match="use prefork, threads, solo or gevent"):
        ways(made)["plain"][0].apply((1, 2), throw=True)
