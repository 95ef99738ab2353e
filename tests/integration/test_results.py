"""``argus://`` answers as Celery's own Redis backend does, for durable tasks and for others."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from celery import group
from celery.exceptions import TimeoutError
from celery.result import AsyncResult, GroupResult, ResultSet, result_from_tuple

from tests.integration.embedded import Shop, shop, until
from tests.integration.result_bodies import Gate, OrderFailed, register

pytestmark = pytest.mark.redis

KINDS = ["durable on argus", "ordinary on argus", "durable on redis"]


@pytest.fixture(params=KINDS)
def bench(sqlite_store_url: str, redis_broker: str, request: pytest.FixtureRequest) -> Shop:
    backend = redis_broker if request.param.endswith("redis") else "argus://"
    made = shop(sqlite_store_url, redis_broker, backend, max_payload=50_000)
    made.gate = register(made, is_durable=request.param.startswith("durable"))  # type: ignore[attr-defined]
    return made


@pytest.fixture
def gate(bench: Shop) -> Iterator[Gate]:
    gate: Gate = bench.gate  # type: ignore[attr-defined]
    yield gate
    gate.open.set()


def fresh(bench: Shop, result: AsyncResult) -> AsyncResult:
    """As another process sees it."""
    bench.app.backend._cache.clear()
    return bench.app.AsyncResult(result.id)


def task(bench: Shop, name: str) -> Any:
    return bench.app.tasks[f"shop.{name}"]


# --- one result ------------------------------------------------------------------------------------------------------


def test_a_value_comes_back_with_its_state_and_the_time_it_was_done(bench: Shop) -> None:
    with bench.worker():
        result = task(bench, "add").delay(2, 3)
        assert result.get(timeout=20) == 5
    for one in (result, fresh(bench, result)):
        assert (one.state, one.result, one.info, one.traceback) == ("SUCCESS", 5, 5, None)
        assert one.ready() and one.successful() and not one.failed() and one.exists()
        assert isinstance(one.date_done, datetime)
        assert one.children == []


def test_a_failure_comes_back_as_its_own_exception_with_the_traceback(bench: Shop) -> None:
    with bench.worker():
        result = task(bench, "fail").delay()
        with pytest.raises(OrderFailed) as caught:
            result.get(timeout=20)
    assert (caught.value.order, caught.value.why) == (17, "no money")
    seen = fresh(bench, result)
    assert seen.state == "FAILURE" and seen.failed() and isinstance(seen.result, OrderFailed)
    assert "result_bodies.py" in seen.traceback and "OrderFailed" in seen.traceback
    assert isinstance(seen.get(propagate=False), OrderFailed)


def test_the_traceback_of_a_chained_exception_tells_of_both(bench: Shop) -> None:
    with bench.worker():
        result = task(bench, "fail").delay("chained")
        with pytest.raises(OSError, match="second"):
            result.get(timeout=20)
    assert "KeyError: 'first'" in result.traceback and "direct cause" in result.traceback


@pytest.mark.parametrize(("kind", "told"), [("demanding", "1 2"), ("lock", "lock")])
def test_an_exception_that_cannot_be_made_again_is_told_in_words(bench: Shop, kind: str, told: str) -> None:
    with bench.worker():
        result = task(bench, "fail").delay(kind)
        with pytest.raises(Exception, match=told):
            result.get(timeout=20)
    assert result.state == "FAILURE"


def test_an_unknown_id_is_pending_and_does_not_exist(bench: Shop) -> None:
    result = bench.app.AsyncResult("nobody")
    assert (result.state, result.result, result.exists(), result.ready()) == ("PENDING", None, False, False)
    with pytest.raises(TimeoutError):
        result.get(timeout=0.1)
    with pytest.raises(TimeoutError):
        result.get(timeout=0)


def test_what_was_sent_and_not_begun_is_pending_and_does_not_exist_yet(bench: Shop) -> None:
    result = task(bench, "add").delay(1)
    assert (result.state, result.exists()) == ("PENDING", False)


def test_a_timeout_ends_the_wait_and_not_the_task(bench: Shop, gate: Gate) -> None:
    with bench.worker():
        result = task(bench, "told").delay()
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            result.get(timeout=0.3)
        assert time.monotonic() - began < 5
        gate.open.set()
        assert result.get(timeout=20) == "end"


def test_callbacks_and_intervals_are_called_as_it_waits(bench: Shop) -> None:
    seen: list[Any] = []
    ticks: list[int] = []
    with bench.worker():
        result = task(bench, "slow").delay(1.2, "v")
        got = result.get(
            timeout=20, callback=lambda id_, value: seen.append((id_, value)), on_interval=lambda: ticks.append(1)
        )
    assert got == "v"
    assert seen == [(result.id, "v")]
    assert ticks


def test_messages_are_shown_as_they_come(bench: Shop) -> None:
    messages: list[Any] = []
    with bench.worker():
        result = task(bench, "slow").delay(0.5, "v")
        assert result.get(timeout=20, on_message=messages.append) == "v"
    assert [(one["task_id"], one["status"], one["result"]) for one in messages][-1] == (result.id, "SUCCESS", "v")


def test_a_promise_is_kept_when_the_result_is_waited_for(bench: Shop) -> None:
    kept: list[Any] = []
    with bench.worker():
        result = task(bench, "slow").delay(0.3, "v")
        result.then(lambda one: kept.append(one.result))
        result.get(timeout=20)
    assert kept == ["v"]


def test_a_task_may_wait_for_another_if_it_says_so(bench: Shop) -> None:
    with bench.worker(concurrency=2):
        assert task(bench, "waits").delay().get(timeout=20) == 2


# --- states before the end -------------------------------------------------------------------------------------------


def test_a_state_of_its_own_is_seen_while_the_task_runs_and_gone_at_its_end(bench: Shop, gate: Gate) -> None:
    with bench.worker():
        result = task(bench, "told").delay()
        assert gate.here.wait(20)
        assert (result.state, result.info) == ("PROGRESS", {"done": 3})
        assert not result.ready()
        gate.open.set()
        assert result.get(timeout=20) == "end"
    assert (fresh(bench, result).state, result.info) == ("SUCCESS", "end")


def test_a_started_task_tells_where_it_runs(bench: Shop, gate: Gate) -> None:
    import os

    with bench.worker():
        result = task(bench, "started").delay()
        assert gate.here.wait(20)
        assert result.state == "STARTED"
        assert result.info["pid"] == os.getpid() and "@" in result.info["hostname"]
        gate.open.set()
        assert result.get(timeout=20) == "end"


def test_a_retry_shows_its_reason_until_it_runs_again(bench: Shop) -> None:
    with bench.worker():
        result = task(bench, "again").delay()
        until(lambda: result.state == "RETRY")
        assert isinstance(result.result, OrderFailed) and result.result.why == "later"
        assert "Retry in 3600" in result.traceback or "OrderFailed" in result.traceback
        assert result.exists() and not result.ready()


@pytest.mark.parametrize(
    ("state", "meta"),
    [("FAILURE", {"exc_type": "ValueError", "exc_module": "builtins", "exc_message": ["own"]}), ("SUCCESS", "own")],
)
def test_an_end_that_a_task_gives_itself_stands_if_it_then_raises_ignore(bench: Shop, state: str, meta: Any) -> None:
    with bench.worker():
        result = task(bench, "own_end").delay(state, meta)
        until(lambda: fresh(bench, result).state == state)
        if state == "SUCCESS":
            assert result.get(timeout=20) == "own"
        else:
            with pytest.raises(ValueError, match="own"):
                result.get(timeout=20)


# --- many results ----------------------------------------------------------------------------------------------------


def test_a_group_gives_its_results_in_order(bench: Shop) -> None:
    with bench.worker():
        result = group(task(bench, "add").s(i, 1) for i in range(30)).apply_async()
        assert result.get(timeout=30) == list(range(1, 31))
    assert result.completed_count() == 30 and result.successful() and not result.failed() and not result.waiting()
    again = bench.app.GroupResult(result.id, [fresh(bench, one) for one in result.results])
    assert again.ready() and again.join(timeout=5) == again.join_native(timeout=5) == list(range(1, 31))
    assert {id_: meta["result"] for id_, meta in again.iter_native(timeout=5)} == {
        one.id: i + 1 for i, one in enumerate(again.results)
    }


def test_a_failure_in_a_group_is_raised_or_given(bench: Shop) -> None:
    with bench.worker():
        result = group([task(bench, "give").s(1), task(bench, "fail").s()]).apply_async()
        with pytest.raises(OrderFailed):
            result.get(timeout=20)
        until(result.ready)
        got = result.get(timeout=20, propagate=False)
    assert got[0] == 1 and isinstance(got[1], OrderFailed)
    assert result.failed() and result.completed_count() == 1


def test_a_group_that_is_not_done_in_time_is_a_timeout(bench: Shop, gate: Gate) -> None:
    with bench.worker(concurrency=4):
        result = group([task(bench, "give").s(1), task(bench, "told").s()]).apply_async()
        with pytest.raises(TimeoutError):
            result.get(timeout=0.5)
        gate.open.set()
        assert result.get(timeout=20) == [1, "end"]


def test_a_set_of_results_calls_back_for_each(bench: Shop) -> None:
    seen: dict[str, Any] = {}
    with bench.worker():
        results = [task(bench, "give").delay(i) for i in range(5)]
        ResultSet(results, app=bench.app).get(timeout=20, callback=seen.__setitem__)
    assert seen == {one.id: i for i, one in enumerate(results)}


def test_a_promise_of_a_group_is_kept(bench: Shop) -> None:
    kept: list[Any] = []
    with bench.worker():
        result = group(task(bench, "slow").s(0.2, i) for i in range(3)).apply_async()
        result.then(lambda done: kept.append(sorted(one.result for one in done.results)))
        assert result.get(timeout=20) == [0, 1, 2]
    assert kept == [[0, 1, 2]]


def test_a_group_is_saved_restored_and_deleted(bench: Shop) -> None:
    with bench.worker():
        result = group(task(bench, "give").s(i) for i in range(3)).apply_async()
        result.save()
        result.save()
        bench.app.backend._cache.clear()
        restored = GroupResult.restore(result.id, app=bench.app)
        assert restored == result
        assert restored.get(timeout=20) == [0, 1, 2]
        restored.delete()
    bench.app.backend._cache.clear()
    assert GroupResult.restore(result.id, app=bench.app) is None


def test_a_result_is_found_again_from_its_tuple(bench: Shop) -> None:
    with bench.worker():
        chain = (task(bench, "give").s(1) | task(bench, "add").s(1)).apply_async()
        assert chain.get(timeout=20) == 2
        same = result_from_tuple(chain.as_tuple(), app=bench.app)
    assert (same.get(timeout=20), same.parent.get(timeout=20)) == (2, 1)


def test_children_of_a_task_are_followed(bench: Shop) -> None:
    with bench.worker():
        result = task(bench, "parent").delay(3)
        group_id = result.get(timeout=20)
        (children,) = fresh(bench, result).children
        assert isinstance(children, GroupResult) and children.id == group_id
        assert children.get(timeout=20) == [0, 1, 2]
        seen = fresh(bench, result)
        got = dict(seen.collect(timeout=10))
        assert got[seen] == group_id and [0, 1, 2] in got.values()
        assert {str(node) for node in seen.graph} >= {result.id, *(one.id for one in children)}
        assert len(list(seen.iterdeps())) == 5


def test_what_was_read_once_is_read_again_when_it_has_changed(bench: Shop) -> None:
    backend = bench.app.backend
    backend.mark_as_failure("someone", OrderFailed(1, "no"))
    with pytest.raises(OrderFailed):
        bench.app.AsyncResult("someone").get(timeout=5)
    backend.mark_as_done("someone", "yes")
    if "redis" not in type(backend).__module__:  # there the first answer may be given once more
        assert bench.app.AsyncResult("someone").get(timeout=5) == "yes"


# --- threads ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True])
def test_many_threads_wait_at_once(bench: Shop, shared: bool) -> None:
    bench.app.conf.result_backend_thread_safe = shared
    got: dict[int, Any] = {}

    def ask(i: int) -> None:
        got[i] = task(bench, "add").delay(i, 1).get(timeout=30)

    with bench.worker(concurrency=4):
        threads = [threading.Thread(target=ask, args=(i,)) for i in range(20)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(40)
    assert got == {i: i + 1 for i in range(20)}


# --- forgetting ------------------------------------------------------------------------------------------------------


def test_a_forgotten_result_is_pending_and_does_not_exist(bench: Shop) -> None:
    with bench.worker():
        result = task(bench, "give").delay("v")
        assert result.get(timeout=20) == "v"
        result.forget()
    seen = fresh(bench, result)
    assert (seen.state, seen.result, seen.exists()) == ("PENDING", None, False)
