"""Many calls of one task are made by Celery once and copied: nobody can tell."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from celery import Celery, Task, chain, group, signals
from kombu import Queue

from argus_celery import Argus, Limit
from argus_celery.errors import BadTask, PayloadTooLarge
from argus_celery.hooks.alike import Calls
from argus_celery.hooks.batch import collecting
from argus_celery.records import NewTask
from argus_celery.store import setup


@pytest.fixture
def argus(sqlite_store_url: str) -> Iterator[Argus]:
    app = Celery("shop", broker="memory://", backend="cache+memory://", set_as_current=False)
    argus = Argus(app, store=sqlite_store_url, max_payload=10_000)
    app.conf.task_queues = [Queue("celery"), Queue("slow", routing_key="slow.#")]
    app.conf.task_routes = {"routed.*": {"queue": "slow"}}

    @argus.durable
    @app.task(name="charge", shared=False)
    def charge(order: Any, more: int = 0) -> None: ...

    @argus.durable
    @app.task(name="routed.report", shared=False, serializer="pickle", time_limit=50, ignore_result=True, priority=3)
    def report(*args: Any, **kwargs: Any) -> None: ...

    @argus.durable(limit=Limit(concurrency=1, key="args.order"))
    @app.task(name="limited", shared=False)
    def limited(order: Any) -> None: ...

    @argus.durable(unique="args.order")
    @app.task(name="one", shared=False)
    def one(order: Any) -> None: ...

    @argus.durable
    @app.task(name="soon", shared=False, expires=60)
    def soon(order: Any) -> None: ...

    @argus.durable
    @app.task(name="packed", shared=False, compression="gzip")
    def packed(order: Any) -> None: ...

    class Shadowed(Task):
        def shadow_name(self, args: Any, kwargs: Any, options: Any) -> str:
            return f"shadow of {args[0]}"

    @argus.durable
    @app.task(name="shadowed", shared=False, base=Shadowed)
    def shadowed(order: Any) -> None: ...

    setup.init(argus.runtime.store)
    yield argus
    argus.runtime.store.dispose()


@contextmanager
def watched() -> Iterator[list[str]]:
    """Somebody is told of each call."""
    seen: list[str] = []

    def see(headers: dict[str, Any], **_: Any) -> None:
        seen.append(headers["id"])

    signals.before_task_publish.connect(see)
    try:
        yield seen
    finally:
        signals.before_task_publish.disconnect(see)


def collected(argus: Argus, signatures: list[Any]) -> list[NewTask]:
    with collecting() as tasks:
        calls = Calls(argus.app, argus.runtime, tasks)
        results = [calls.apply(signature) for signature in signatures]
    assert [result.id for result in results if len(tasks) == len(results)] == [task.id for task in tasks]
    return tasks


def nameless(task: NewTask) -> NewTask:
    headers = {**task.message.headers}
    assert headers.pop("id") == headers.pop("root_id") == task.id == task.root_id
    properties = {**task.message.properties}
    assert properties.pop("correlation_id") == task.id
    assert UUID(task.id)
    return replace(task, id="", root_id="", message=replace(task.message, headers=headers, properties=properties))


CALLS: dict[str, Callable[[Any], list[Any]]] = {
    "plain": lambda t: [t["charge"].s(n) for n in range(5)],
    "arguments of all kinds": lambda t: [
        t["charge"].s(one, more=n) for n, one in enumerate([None, "ä" * 300, [1, {"a": 2}], b"\0".hex(), 1.5])
    ],
    "keys": lambda t: [t["charge"].s(n).set(argus_key=f"order-{n}") for n in range(4)],
    "queues and priorities": lambda t: [t["charge"].s(n).set(queue="slow", priority=n % 2) for n in range(6)],
    "its own options": lambda t: [t["routed.report"].s(n, {n}, at=n) for n in range(4)],
    "limits": lambda t: [t["limited"].s(n) for n in range(4)],
    "unique": lambda t: [t["one"].s(n) for n in range(4)],
    "names of the call": lambda t: [t["shadowed"].s(n) for n in range(4)],
    "several tasks": lambda t: [t[name].s(n) for n in range(4) for name in ("charge", "routed.report")],
    "headers": lambda t: [t["charge"].s(n).set(headers={"tenant": n}) for n in range(4)],
    "links": lambda t: [t["charge"].s(n).set(link=t["charge"].s()) for n in range(4)],
    "ids": lambda t: [t["charge"].s(n).set(task_id=str(UUID(int=n))) for n in range(1, 4)],
    "stamps": lambda t: [t["charge"].s(n).set(stamped_headers=["a"], a=n) for n in range(4)],
    "immutable": lambda t: [t["charge"].si(n) for n in range(4)],
    "packed": lambda t: [t["packed"].s(n) for n in range(4)],
}


@pytest.mark.parametrize("kind", CALLS)
def test_the_messages_of_many_are_those_that_celery_makes(argus: Argus, kind: str) -> None:
    calls = CALLS[kind](argus.app.tasks)
    many = collected(argus, calls)
    with watched() as seen:
        single = collected(argus, calls)
    assert [nameless(task) for task in many] == [nameless(task) for task in single]
    assert [list(task.message.headers) for task in many] == [list(task.message.headers) for task in single]
    assert seen == [task.id for task in single]


def test_who_watches_single_calls_is_told_of_each(argus: Argus) -> None:
    with watched() as seen:
        results = argus.project("import").enqueue_many(argus.app.tasks["charge"].s(n) for n in range(5))
    assert seen == [result.id for result in results]


def test_a_method_that_another_library_has_wrapped_is_called_for_each(
    argus: Argus, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    theirs = Task.apply_async

    def apply_async(self: Any, args: Any = None, *rest: Any, **options: Any) -> Any:
        seen.append(args)
        return theirs(self, args, *rest, **options)

    monkeypatch.setattr(Task, "apply_async", apply_async)
    collected(argus, CALLS["plain"](argus.app.tasks))
    assert seen == [(n,) for n in range(5)]


def test_a_router_that_looks_at_the_arguments_is_asked_for_each(argus: Argus) -> None:
    def route(name: str, args: Any, kwargs: Any, options: Any, task: Any = None, **rest: Any) -> Any:
        return {"queue": "slow"} if args[0] % 2 else None

    argus.app.conf.task_routes = (route,)
    made = collected(argus, CALLS["plain"](argus.app.tasks))
    assert [task.message.queue for task in made] == ["celery", "slow"] * 2 + ["celery"]


def test_times_that_are_reckoned_from_the_call_are_reckoned_for_each(argus: Argus) -> None:
    made = collected(argus, [argus.app.tasks["soon"].s(n) for n in range(4)])
    assert len({task.message.headers["expires"] for task in made}) == 4


def test_a_call_that_the_function_does_not_take_is_refused_among_many_too(argus: Argus) -> None:
    charge = argus.app.tasks["charge"]
    with pytest.raises(TypeError, match="argument"):
        argus.project("import").enqueue_many([*(charge.s(n) for n in range(4)), charge.s()])
    with pytest.raises(PayloadTooLarge):
        argus.project("import").enqueue_many([*(charge.s(n) for n in range(4)), charge.s("x" * 10_000)])
    with pytest.raises(BadTask, match="has no option argus_kye"):
        argus.project("import").enqueue_many([*(charge.s(n) for n in range(4)), charge.s(1).set(argus_kye="a")])
    assert argus.project("import").progress().total == 0


def test_canvases_among_many_are_sent_as_ever(argus: Argus) -> None:
    charge = argus.app.tasks["charge"]
    many = [charge.s(n) for n in range(4)]
    results = argus.project("import").enqueue_many([*many, chain(charge.s(4), charge.si(5)), group(many), *many])
    assert argus.project("import").progress().total == 4 + 1 + 4 + 4
    assert len({result.id for result in results}) == 10


def test_results_of_many_are_those_of_the_task(argus: Argus) -> None:
    charge = argus.app.tasks["charge"]
    results = argus.project("import").enqueue_many(charge.s(n) for n in range(4))
    assert {type(result) for result in results} == {type(charge.delay(1))}
    assert {result.backend for result in results} == {charge.backend}


def test_of_many_calls_of_a_kind_celery_makes_two(argus: Argus, monkeypatch: pytest.MonkeyPatch) -> None:
    make, made = argus.app.amqp.create_task_message, []
    monkeypatch.setattr(argus.app.amqp, "create_task_message", lambda *a, **k: (made.append(a), make(*a, **k))[1])
    collected(argus, [argus.app.tasks[name].s(n) for n in range(9) for name in ("charge", "routed.report", "limited")])
    assert len(made) == 2 + 2 + 9
