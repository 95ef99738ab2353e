"""A canvas that failed in the middle goes on from there: finished nodes are kept, the failed one runs again."""

from __future__ import annotations

from typing import Any

import pytest
from celery import chain, chord, group
from celery.exceptions import ChordError

from argus_celery import durable
from argus_celery.records import ProjectStatus, TaskState
from tests.integration.embedded import Shop, shop, until

pytestmark = pytest.mark.redis


@pytest.fixture(params=["argus://", "redis"])
def bench(request: pytest.FixtureRequest, sqlite_store_url: str, redis_broker: str) -> Shop:
    backend = redis_broker if request.param == "redis" else request.param
    made: Any = shop(sqlite_store_url, redis_broker, backend)
    made.failed = set()
    made.app.conf.result_extended = True
    broken: list[bool] = [True]

    @durable(lease_ttl=9)
    @made.app.task(shared=False, name="shop.step", bind=True)
    def step(self: Any, before: list[str], name: str) -> list[str]:
        made.log.append(name)
        if name == "b" and broken:
            broken.pop()
            raise KeyError("not yet")
        return [*before, name]

    @durable
    @made.app.task(shared=False, name="shop.stubborn", bind=True, max_retries=1)
    def stubborn(self: Any) -> str:
        made.log.append(self.request.retries)
        if len(made.log) < 3:
            raise self.retry(countdown=0)
        return "done"

    @durable
    @made.app.task(shared=False, name="shop.add")
    def add(*numbers: int, fails: str = "") -> int:
        made.log.append(f"add{numbers}")
        if fails and fails not in made.failed:
            made.failed.add(fails)
            raise KeyError(fails)
        return sum(numbers)

    @durable
    @made.app.task(shared=False, name="shop.total")
    def total(numbers: list[int], more: int = 0) -> int:
        made.log.append(f"total{numbers}")
        return sum(numbers) + more

    @durable
    @made.app.task(shared=False, name="shop.told")
    def told(task_id: str) -> None:
        made.log.append("told")

    @durable
    @made.app.task(shared=False, name="shop.handing", bind=True)
    def handing(self: Any) -> Any:
        made.log.append("handing")
        raise self.replace(chain(add.s(1, fails="first"), add.s(2), add.s(3)))

    return made


def test_a_restarted_part_of_a_chord_takes_its_body_along_and_keeps_the_other_parts(sqlite_store_url: str) -> None:
    made: Any = shop(sqlite_store_url, f"argus+{sqlite_store_url}")

    @durable
    @made.app.task(shared=False, name="shop.grow")
    def grow(name: str) -> int:
        made.log.append(name)
        return made.log.count(name)

    @durable
    @made.app.task(shared=False, name="shop.sum")
    def sum_up(numbers: list[int]) -> int:
        return sum(numbers)

    @durable
    @made.app.task(shared=False, name="shop.double")
    def double(number: int) -> int:
        return 2 * number

    project = made.argus.project("p")
    first, second = grow.s("a"), grow.s("b")
    first.set(task_id="first")
    with project:
        result = chain(chord([first, second], sum_up.s()), double.s()).apply_async()
    with made.worker():
        made.drained()
        assert made.app.AsyncResult(result.id).get(timeout=10) == 4
        project.close()
        assert len(project.restart("first")) == 3
        made.drained()
        until(lambda: made.task(result.id).state is TaskState.SUCCEEDED)
        assert project.join(timeout=10) is ProjectStatus.COMPLETED
        assert made.app.AsyncResult(result.id).get(timeout=10) == 6
    assert sorted(made.log) == ["a", "a", "b"]


def steps(bench: Shop, names: str) -> Any:
    step = bench.app.tasks["shop.step"]
    first, *rest = names
    return chain(step.s([], first), *(step.s(name) for name in rest))


def test_a_chain_goes_on_from_the_task_that_failed(bench: Shop) -> None:
    project = bench.argus.project("import")
    with bench.worker():
        result = project.enqueue(steps(bench, "abcd"))
        project.close()
        assert project.join(timeout=20) is ProjectStatus.FAILED
        until(lambda: bench.app.AsyncResult(result.id).state == "FAILURE")
        put_back = project.retry_failed()
        assert put_back == [result.parent.parent.id]
        assert project.join(timeout=20) is ProjectStatus.COMPLETED
        until(lambda: bench.app.AsyncResult(result.id).state == "SUCCESS")
        fresh = bench.app.AsyncResult(result.id)
        assert fresh.get(timeout=10) == ["a", "b", "c", "d"]
        assert bench.app.AsyncResult(put_back[0]).get(timeout=10) == ["a", "b"]
    assert bench.log == ["a", "b", "b", "c", "d"]
    assert project.progress().counts[TaskState.SUCCEEDED] == 4
    assert project.retry_failed() == []


def test_a_task_that_was_put_back_has_its_own_lease_ttl_again(bench: Shop) -> None:
    project = bench.argus.project("import")
    with bench.worker():
        result = project.enqueue(bench.app.tasks["shop.step"].s([], "b"))
        bench.ended(result.id)
    assert project.retry(result.id)
    assert bench.lease(result.id).ttl == 9_000


def test_the_retries_that_were_used_up_stay_so(bench: Shop) -> None:
    project = bench.argus.project("import")
    with bench.worker():
        result = project.enqueue(bench.app.tasks["shop.stubborn"].s())
        bench.ended(result.id)
        project.retry_failed()
        bench.ended(result.id)
        until(lambda: bench.app.AsyncResult(result.id).state == "SUCCESS")
    assert bench.log == [0, 1, 1]


def once_more(bench: Shop, canvas: Any, error: type[Exception]) -> Any:
    """Its value, after it has failed and all that failed was put back."""
    project = bench.argus.project("import")
    with bench.worker():
        result = project.enqueue(canvas)
        project.close()
        assert project.join(timeout=20) is ProjectStatus.FAILED
        until(lambda: bench.app.AsyncResult(result.id).state == "FAILURE")
        with pytest.raises(error):
            bench.app.AsyncResult(result.id).get(timeout=10)
        project.retry_failed()
        assert project.join(timeout=20) is ProjectStatus.COMPLETED
        assert project.retry_failed() == []
        until(lambda: bench.app.AsyncResult(result.id).state == "SUCCESS")
        return bench.app.AsyncResult(result.id).get(timeout=10)


def test_a_chord_whose_header_failed_has_its_body_run_once_with_all_results_in_order(bench: Shop) -> None:
    add, total, told = (bench.app.tasks[f"shop.{name}"] for name in ("add", "total", "told"))
    header = [add.s(1), add.s(2, fails="second"), add.s(3)]
    assert once_more(bench, chord(header, total.s().on_error(told.s())), ChordError) == 6
    assert sorted(bench.log) == ["add(1,)", "add(2,)", "add(2,)", "add(3,)", "told", "total[1, 2, 3]"]


def test_a_chain_in_a_header_goes_on_from_its_first_task(bench: Shop) -> None:
    add, total = bench.app.tasks["shop.add"], bench.app.tasks["shop.total"]
    header = [add.s(1), chain(add.s(2, fails="second"), add.s(5), add.s(7)), add.s(3)]
    assert once_more(bench, chord(header, total.s()), ChordError) == 1 + 14 + 3
    assert bench.log.count("total[1, 14, 3]") == 1
    assert [bench.log.count(f"add({n},)") for n in (1, 2, 3)] == [1, 2, 1]


def test_what_follows_a_chord_goes_on_too(bench: Shop) -> None:
    add, total = bench.app.tasks["shop.add"], bench.app.tasks["shop.total"]
    canvas = chain(group(add.s(1, fails="first"), add.s(2)), total.s(), add.s(10), add.s(100))
    assert once_more(bench, canvas, ChordError) == 113
    assert bench.log.count("total[1, 2]") == 1


def test_a_chord_within_a_chord_goes_on(bench: Shop) -> None:
    add, total = bench.app.tasks["shop.add"], bench.app.tasks["shop.total"]
    inner = chord([add.s(1, fails="first"), add.s(2)], total.s())
    assert once_more(bench, chord([inner, add.s(4)], total.s()), ChordError) == 7
    assert bench.log.count("total[3, 4]") == 1


def test_a_task_that_was_replaced_by_a_chain_goes_on_from_where_that_failed(bench: Shop) -> None:
    assert once_more(bench, bench.app.tasks["shop.handing"].s(), KeyError) == 6
    assert sorted(bench.log) == ["add(1, 2)", "add(1,)", "add(1,)", "add(3, 3)", "handing"]


def test_a_body_that_failed_by_itself_runs_again_and_its_header_does_not(bench: Shop) -> None:
    add = bench.app.tasks["shop.add"]
    assert once_more(bench, chord([add.s(1), add.s(2)], add.si(5, fails="body")), KeyError) == 5
    assert sorted(bench.log) == ["add(1,)", "add(2,)", "add(5,)", "add(5,)"]


def test_two_chains_that_failed_in_one_header_fail_the_chord_once(bench: Shop) -> None:
    add, total, told = (bench.app.tasks[f"shop.{name}"] for name in ("add", "total", "told"))
    header = [chain(add.s(1, fails="first"), add.s(2)), chain(add.s(3, fails="second"), add.s(4))]
    assert once_more(bench, chord(header, total.s().on_error(told.s())), ChordError) == 10
    assert bench.log.count("told") == 1
    assert bench.log.count("total[3, 7]") == 1


def test_what_follows_is_pending_again_in_the_store(bench: Shop) -> None:
    project = bench.argus.project("import")
    with bench.worker():
        result = project.enqueue(steps(bench, "bcd"))
        until(lambda: bench.app.AsyncResult(result.id).state == "FAILURE")
    project.retry_failed()
    foreign = bench.app.conf.result_backend != "argus://"
    assert bench.app.AsyncResult(result.id).state == ("FAILURE" if foreign else "PENDING")
