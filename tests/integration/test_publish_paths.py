"""Every way in which Celery publishes a task records a durable one, once, and runs it once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
from celery import chain, chord, group

from argus_celery import durable
from argus_celery.records import TaskState
from tests.integration.embedded import Shop, shop, until

pytestmark = pytest.mark.redis


@pytest.fixture
def bench(sqlite_store_url: str, redis_broker: str) -> Shop:
    made = shop(sqlite_store_url, redis_broker)
    _tasks(made)
    return made


def _tasks(made: Shop) -> None:
    app, log = made.app, made.log

    @durable
    @app.task(shared=False, name="shop.add")
    def add(x: int, y: int) -> int:
        log.append(("add", x, y))
        return x + y

    @durable
    @app.task(shared=False, name="shop.total")
    def total(parts: list[int]) -> int:
        log.append(("total", tuple(parts)))
        return sum(parts)

    @durable
    @app.task(shared=False, name="shop.fail")
    def fail() -> None:
        log.append("fail")
        raise ValueError("no")

    @durable
    @app.task(shared=False, name="shop.note")
    def note(*args: Any) -> None:
        log.append(("note", args))

    @durable
    @app.task(shared=False, name="shop.sent")
    def sent(what: str) -> None:
        log.append(("sent", what))

    @durable
    @app.task(shared=False, name="shop.called_back")
    def called_back(request: Any, error: Any, traceback: Any) -> None:
        log.append(("called back", str(error)))

    @durable
    @app.task(shared=False, name="shop.again", bind=True, max_retries=3)
    def again(self: Any, countdown: float | None = 0) -> int:
        log.append(("again", self.request.retries))
        if self.request.retries < 2:
            raise self.retry(countdown=countdown)
        return 7

    @durable
    @app.task(
        shared=False, name="shop.auto", bind=True, autoretry_for=(OSError,), retry_backoff=False, default_retry_delay=0
    )
    def auto(self: Any) -> int:
        log.append(("auto", self.request.retries))
        if self.request.retries < 1:
            raise OSError("once")
        return 8

    @durable
    @app.task(shared=False, name="shop.replaced", bind=True)
    def replaced(self: Any, how: str) -> Any:
        log.append(("replaced", how))
        if how == "one":
            return self.replace(add.s(20, 1))
        if how == "chain":
            return self.replace(chain(add.s(1, 1), add.s(40)))
        return self.replace(group([add.s(1, 1), add.s(2, 2)] if how == "group" else []))

    @durable
    @app.task(shared=False, name="shop.parent")
    def parent() -> str:
        return str(add.delay(5, 5).id)

    @app.task(shared=False, name="shop.plain")
    def plain(x: int) -> int:
        log.append(("plain", x))
        return x


def _names(made: Shop) -> list[str]:
    return made.names()


PATHS: dict[str, tuple[Callable[[Shop], Any], int]] = {
    "delay": (lambda s: s.app.tasks["shop.add"].delay(1, 2), 3),
    "apply_async": (lambda s: s.app.tasks["shop.add"].apply_async((1, 2), queue="celery", priority=3), 3),
    "signature": (lambda s: s.app.tasks["shop.add"].s(1, 2).delay(), 3),
    "signature by name": (lambda s: s.app.signature("shop.add", (1, 2)).delay(), 3),
    "send_task": (lambda s: s.app.send_task("shop.add", (1, 2)), 3),
    "countdown": (lambda s: s.app.tasks["shop.add"].apply_async((1, 2), countdown=1), 3),
    "chain": (lambda s: chain(s.app.tasks["shop.add"].s(1, 2), s.app.tasks["shop.add"].s(4)).delay(), 7),
    "retry": (lambda s: s.app.tasks["shop.again"].delay(), 7),
    "autoretry": (lambda s: s.app.tasks["shop.auto"].delay(), 8),
    "replace by one": (lambda s: s.app.tasks["shop.replaced"].delay("one"), 21),
    "replace by a chain": (lambda s: s.app.tasks["shop.replaced"].delay("chain"), 42),
    "replace by a group": (lambda s: s.app.tasks["shop.replaced"].delay("group"), [2, 4]),
    "replace by nothing": (lambda s: s.app.tasks["shop.replaced"].delay("nothing"), []),
    "zlib and pickle-free json": (lambda s: s.app.tasks["shop.add"].apply_async((1, 2), compression="zlib"), 3),
}


@pytest.mark.parametrize("path", PATHS)
def test_a_durable_task_is_recorded_and_runs_whatever_way_it_was_sent(bench: Shop, path: str) -> None:
    send, expected = PATHS[path]
    result = send(bench)
    with bench.worker():
        assert result.get(timeout=20) == expected
        bench.drained()
    assert bench.states() == {TaskState.SUCCEEDED}
    assert len(bench.log) == len(set(bench.log))


def test_group_is_recorded_task_by_task_and_joins(bench: Shop) -> None:
    result = group(bench.app.tasks["shop.add"].s(i, i) for i in range(3)).delay()
    assert bench.names() == ["add"] * 3
    with bench.worker():
        assert result.get(timeout=20) == [0, 2, 4]


def test_chord_runs_its_body_once_with_the_parts_in_order(bench: Shop) -> None:
    add, total = bench.app.tasks["shop.add"], bench.app.tasks["shop.total"]
    result = chord([add.s(i, 1) for i in range(3)], total.s()).delay()
    with bench.worker():
        assert result.get(timeout=30) == 6
        bench.drained()
    assert [one for one in bench.log if one[0] == "total"] == [("total", (1, 2, 3))]


def test_a_chord_whose_header_fails_has_a_failed_result(bench: Shop) -> None:
    add, fail, total = (bench.app.tasks[f"shop.{name}"] for name in ("add", "fail", "total"))
    result = chord([add.s(1, 1), fail.si()], total.s()).delay()
    with bench.worker():
        until(lambda: result.state == "FAILURE", 30)
    assert ("total", ()) not in bench.log
    assert "total" not in bench.names()


def test_the_result_of_a_plain_task_is_kept_by_the_store_as_backend(bench: Shop) -> None:
    plain = bench.app.tasks["shop.plain"]
    result = plain.delay(4)
    with bench.worker():
        assert result.get(timeout=20) == 4
    assert bench.task(result.id).project == "argus.results"


def test_callbacks_are_recorded_with_the_completion_and_run_once(bench: Shop) -> None:
    add, note, plain = (bench.app.tasks[f"shop.{name}"] for name in ("add", "note", "plain"))
    add.apply_async((1, 2), link=[note.s(), plain.s()])
    with bench.worker():
        until(lambda: {("note", (3,)), ("plain", 3)} <= set(bench.log))
        bench.drained()
    assert sorted(map(str, bench.log)) == sorted(map(str, [("add", 1, 2), ("note", (3,)), ("plain", 3)]))


def test_errbacks_of_both_kinds_are_called_once(bench: Shop) -> None:
    fail, sent, called_back = (bench.app.tasks[f"shop.{name}"] for name in ("fail", "sent", "called_back"))
    result = fail.apply_async(link_error=[sent.si("it"), called_back.s()])
    with bench.worker():
        with pytest.raises(ValueError):
            result.get(timeout=20)
        until(lambda: len(bench.log) >= 3)
        bench.drained()
    assert sorted(map(str, bench.log)) == sorted(map(str, ["fail", ("called back", "no"), ("sent", "it")]))
    assert bench.task(result.id).state is TaskState.FAILED


def test_a_child_belongs_to_the_project_of_its_parent(bench: Shop) -> None:
    project = bench.argus.project("import")
    with project:
        result = bench.app.tasks["shop.parent"].delay()
    project.close()
    with bench.worker():
        child = result.get(timeout=20)
        bench.drained()
    assert bench.task(result.id).project == bench.task(child).project == "import"


def test_a_key_leads_a_second_call_to_the_first_task(bench: Shop, caplog: pytest.LogCaptureFixture) -> None:
    add = bench.app.tasks["shop.add"]
    first = add.apply_async((1, 2), argus_key="order-1")
    second = add.apply_async((1, 2), argus_key="order-1")
    third = add.apply_async((9, 9), argus_key="order-1")
    assert first.id == second.id == third.id
    assert bench.names() == ["add"]
    assert "other arguments" in caplog.text


def test_argus_options_never_reach_the_message(bench: Shop, redis_broker: str) -> None:
    bench.app.tasks["shop.add"].apply_async((1, 2), argus_key="k", argus_project="p")
    bench.app.tasks["shop.plain"].apply_async((1,), argus_key="k")
    client = redis.Redis.from_url(redis_broker)
    raw = b"".join(client.lrange("celery", 0, -1))
    assert client.llen("celery") == 2
    assert b"argus_key" not in raw
    assert b"argus_project" not in raw


def test_an_eta_waits_in_the_store_and_not_in_the_broker(bench: Shop, redis_broker: str) -> None:
    at = datetime.now(UTC) + timedelta(hours=1)
    absolute = bench.app.tasks["shop.add"].apply_async((1, 2), eta=at)
    relative = bench.app.tasks["shop.add"].apply_async((1, 2), countdown=3600, expires=7200)
    assert redis.Redis.from_url(redis_broker).llen("celery") == 0
    assert abs(bench.lease(absolute.id).eligible_at - at.timestamp() * 1000) < 2
    lease = bench.lease(relative.id)
    assert lease.expires_at - lease.eligible_at == 3600_000


def test_eager_calls_and_direct_calls_write_no_row(bench: Shop) -> None:
    add = bench.app.tasks["shop.add"]
    assert add(1, 2) == 3
    assert add.apply((1, 2)).get() == 3
    bench.app.conf.task_always_eager = True
    assert add.delay(1, 2).get() == 3
    assert bench.rows() == {}
