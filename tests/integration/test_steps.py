"""Steps of real tasks: workers that are killed, children, retries, results of every serializer (docs/steps.md)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from celery import Task

from argus_celery import current, durable, step
from argus_celery.records import AttemptOutcome, TaskState
from argus_celery.store import setup
from argus_celery.store.engine import Store
from argus_celery.store.schema import leases
from argus_celery.store.schema import steps as table
from tests.integration.embedded import Shop, shop
from tests.integration.workers import Bench, bench

ROOT = Path(__file__).parents[2]
POOLS = ["prefork", "threads", "solo", "gevent"]


# --- real workers ------------------------------------------------------------------------------------------------


@pytest.fixture
def stored(store_url: str, redis_broker: str, tmp_path: Path) -> Iterator[Bench]:
    """Workers whose store is each database in turn."""
    store = Store(store_url, app_name="bodies")
    setup.init(store)
    store.dispose()
    with bench(redis_broker, tmp_path, store=store_url) as one:
        yield one


def done(workers: Bench) -> dict[str, int]:
    """How often each thing was done."""
    return Counter(line.tag for line in workers.ledger.lines("act"))


@pytest.mark.redis
def test_a_task_whose_child_is_killed_in_a_step_goes_on_with_that_step(stored: Bench) -> None:
    stored.worker()
    killed, looped = stored.send("stepping", "abcd", "c"), stored.send("looping", [*"pqrs"], "r")
    for task_id in (killed, looped):
        ended = stored.wait_ended(task_id, within=20)
        assert (ended.state, ended.losses) == (TaskState.SUCCEEDED, 1)
    assert done(stored) == {"a": 1, "b": 1, "c": 2, "d": 1, "p": 1, "q": 1, "r": 2, "s": 1}
    assert stored.app.AsyncResult(killed).get(timeout=5) == [*"abcd"]


@pytest.mark.redis
@pytest.mark.parametrize("pool", ["threads", "solo", "gevent"])
@pytest.mark.parametrize("task", ["stepping", "astepping"])
def test_another_worker_goes_on_with_the_step_in_which_the_first_died(workers: Bench, pool: str, task: str) -> None:
    first = workers.worker(pool=pool)
    first.may_exit = True
    task_id = workers.send(task, "abc", "b")
    first.process.wait(20)
    workers.worker("w2", pool=pool)
    assert workers.wait_ended(task_id, within=20).state is TaskState.SUCCEEDED
    assert done(workers) == {"a": 1, "b": 2, "c": 1}


@pytest.mark.redis
@pytest.mark.parametrize("pool", POOLS)
def test_a_decorated_step_is_called_again_in_every_pool(workers: Bench, pool: str) -> None:
    workers.worker(pool=pool)
    task_id = workers.send("getting", ["a", "b"], 2)
    assert workers.wait_ended(task_id, within=20).state is TaskState.SUCCEEDED
    assert done(workers) == {"a": 3, "b": 3}
    assert [one.outcome for one in workers.attempts(task_id)] == [AttemptOutcome.SUCCEEDED]


@pytest.mark.redis
@pytest.mark.parametrize("pool", POOLS)
def test_a_time_limit_of_a_step_holds_where_python_can_interrupt(patient: Bench, pool: str) -> None:
    patient.worker(pool=pool)
    ends = {task: patient.wait_ended(patient.send(task), within=20) for task in ("late", "alate")}
    assert "StepTimeout" in (ends["alate"].error or "")
    told = "StepTimeout" if pool in ("prefork", "solo") else "make it a coroutine function"
    assert told in (ends["late"].error or "")


@pytest.mark.redis
def test_up_to_a_batch_of_items_is_repeated_after_a_kill_and_their_steps_are_not(workers: Bench) -> None:
    workers.worker()
    task_id = workers.send("looping", [*"abcdefgh"], "g", 4)
    assert workers.wait_ended(task_id, within=20).state is TaskState.SUCCEEDED
    assert done(workers) == {**dict.fromkeys("abcdefh", 1), "g": 2}
    assert workers.app.AsyncResult(task_id).get(timeout=5) == 4


# --- what steps are within a task --------------------------------------------------------------------------------


@pytest.fixture(params=["json", "pickle", "yaml", "msgpack"])
def serializer(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def made(sqlite_store_url: str) -> Shop:
    made = shop(sqlite_store_url, f"argus+{sqlite_store_url}")

    @durable
    @made.app.task(shared=False, name="shop.add")
    def add(x: int, y: int) -> int:
        made.log.append(("add", x, y))
        return x + y

    return made


def names(made: Shop) -> list[str]:
    query = sa.select(table.c.name).order_by(table.c.name)
    return made.argus.runtime.store.statement(lambda connection: list(connection.execute(query).scalars()))


def do(made: Shop, what: Any, fails: bool = False) -> Any:
    made.log.append(what)
    if fails:
        raise ValueError(what)
    return what


def test_values_are_kept_as_results_are(sqlite_store_url: str, serializer: str) -> None:
    made = shop(sqlite_store_url, f"argus+{sqlite_store_url}")
    made.app.conf.update(result_serializer=serializer, accept_content=["json", serializer])
    value = {"text": "✓", "list": [1, 2.5, None, True]}

    @durable
    @made.app.task(shared=False, name="shop.kept", bind=True, max_retries=1)
    def kept(self: Any) -> Any:
        found = current.step("one", do, made, value)
        assert found == value
        if self.request.retries == 0:
            raise self.retry(countdown=0)
        return found

    result = kept.delay()
    with made.worker():
        assert made.ended(result.id).state is TaskState.SUCCEEDED
    assert result.get(timeout=5) == value
    assert made.log == [value]


def test_a_retry_and_a_failed_task_that_is_put_back_keep_the_steps_and_a_restart_forgets_them(made: Shop) -> None:
    @durable
    @made.app.task(shared=False, name="shop.body", autoretry_for=(KeyError,), max_retries=1, default_retry_delay=0)
    def body() -> None:
        for item in current.each("ab", batch=5):
            do(made, item)
            if item == "b" and made.log.count("b") < 3:
                raise KeyError(item)
        current.step("last", do, made, "last", made.log.count("last") == 0)

    project = made.argus.project("p")
    result = project.enqueue(body.s())
    with made.worker():
        assert made.ended(result.id).state is TaskState.FAILED
        assert made.log == ["a", "b", "b"]  # what was finished of the batch was written when the body failed
        project.retry_failed()
        assert made.ended(result.id).state is TaskState.FAILED
        assert made.log == ["a", "b", "b", "b", "last"]
        project.retry_failed()
        assert made.ended(result.id).state is TaskState.SUCCEEDED
        assert made.log == ["a", "b", "b", "b", "last", "last"]
        assert names(made) == ['each["a"]', 'each["b"]', "last"]
        project.restart(result.id)
        assert made.ended(result.id).state is TaskState.SUCCEEDED
        assert made.log[6:] == ["a", "b", "last"]


def test_what_replaces_a_task_begins_with_no_step(made: Shop) -> None:
    @durable
    @made.app.task(shared=False, name="shop.count", bind=True)
    def count(self: Any, left: int) -> int:
        current.step("one", do, made, left)
        if left:
            return self.replace(self.s(left - 1))  # type: ignore[no-any-return]
        return left

    result = made.app.tasks["shop.count"].delay(2)
    with made.worker():
        assert made.ended(result.id).state is TaskState.SUCCEEDED
    assert made.log == [2, 1, 0]


def test_a_value_that_is_too_large_fails_the_task_and_says_what_to_do(made: Shop) -> None:
    big = "x" * (made.argus.settings.max_payload + 1)

    @durable
    @made.app.task(shared=False, name="shop.big")
    def body() -> None:
        current.step("fetch", lambda: big)

    result = body.delay()
    with made.worker():
        assert made.ended(result.id).state is TaskState.FAILED
    assert "argus_max_payload" in (made.task(result.id).error or "")
    assert names(made) == []


def test_without_a_claim_a_body_with_steps_just_runs(made: Shop) -> None:
    @durable
    @made.app.task(shared=False, name="shop.body")
    def body() -> list[str]:
        return [current.step("one", do, made, item) for item in current.each("ab")]

    assert body() == ["a", "b"]
    assert body.apply().get() == ["a", "b"]
    made.app.conf.task_always_eager = True
    assert body.delay().get() == ["a", "b"]
    assert names(made) == []


def test_the_example_of_the_page_runs(made: Shop) -> None:
    code = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "steps.md").read_text(), re.MULTILINE | re.DOTALL)[0]
    names = {
        "app": made.app,
        "parse": lambda page: [page, "link"],
        "store": lambda url, links: made.log.append((url, links)),
        "__name__": "page",
    }
    exec(code, names)
    result = names["crawl"].delay(["a", "b"])  # type: ignore[attr-defined]
    with made.worker():
        assert made.ended(result.id).state is TaskState.SUCCEEDED
    assert made.log == [("a", [None, "link"]), ("b", [None, "link"])]


def test_handlers_behind_the_end_of_a_run_just_call_functions_that_are_steps(made: Shop) -> None:
    @step
    def tell(what: str) -> str:
        return str(do(made, what))

    class Telling(Task):  # type: ignore[misc]
        def on_success(self, *_: Any) -> None:
            tell("success")

        def on_failure(self, *_: Any) -> None:
            tell("failure")

    @durable
    @made.app.task(shared=False, name="shop.body", base=Telling)
    def body(fails: bool) -> None:
        tell("body")
        if fails:
            raise ValueError

    results = [body.delay(fails) for fails in (False, True)]
    with made.worker():
        assert [made.ended(one.id).state for one in results] == [TaskState.SUCCEEDED, TaskState.FAILED]
    assert Counter(made.log) == {"body": 2, "success": 1, "failure": 1}
    assert names(made) == [tell.__qualname__] * 2


def test_in_a_body_a_task_called_directly_takes_part_and_one_that_is_applied_just_runs(made: Shop) -> None:
    @durable
    @made.app.task(shared=False, name="shop.inner")
    def inner(what: str) -> Any:
        return current.step("inner", do, made, what)

    @durable
    @made.app.task(shared=False, name="shop.body")
    def body() -> None:
        inner("called")
        current.step("whole", lambda: inner.apply(("applied",)).result)
        current.step("last", do, made, "last")

    result = body.delay()
    with made.worker():
        assert made.ended(result.id).state is TaskState.SUCCEEDED
    assert made.log == ["called", "applied", "last"]
    assert names(made) == ["inner", "last", "whole"]


@pytest.mark.parametrize("where", ["step", "each", "transaction"])
def test_children_of_what_a_later_run_passes_over_do_not_stand_for_those_behind_it(made: Shop, where: str) -> None:
    """The first run enqueues a child inside, and dies before it enqueues the one behind it."""
    add = made.app.tasks["shop.add"]

    @durable
    @made.app.task(shared=False, name="shop.parent", bind=True, max_retries=1)
    def parent(self: Any) -> None:
        if where == "step":
            current.step("inside", lambda: add.delay(1, 1).id)
        elif where == "each":
            for item in current.each([1]):
                add.delay(item, 1)
        else:
            try:
                with current.transaction() as connection:
                    add.apply_async((1, 1), argus_session=connection)
                    if "rolled back" not in made.log:
                        raise ValueError(made.log.append("rolled back"))
            except ValueError:
                with current.transaction() as connection:
                    add.apply_async((1, 1), argus_session=connection)
        if "lost" not in made.log:
            made.log.append("lost")
            lose(made)
        add.delay(2, 2)

    result = parent.delay()
    with made.worker():
        assert made.ended(result.id).state is TaskState.SUCCEEDED
        made.drained()
    assert sorted(one for one in made.log if "add" in one) == [("add", 1, 1), ("add", 2, 2)]


def lose(made: Shop) -> None:
    """The lease of the run in hand lapses, as if its process had died; the body is left."""
    gone = (
        sa.update(leases)
        .where(leases.c.task_id == current.task_id)
        .values(token=leases.c.token + 1, holder="", eligible_at=0)
    )
    made.argus.runtime.store.statement(lambda c: c.execute(gone))
    current.check()
