"""``current.sleep``, ``sleep_until``, ``wait_for`` and ``project.send`` with a worker: what waits holds none."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import chain, chord, signals, states

from argus_celery import current, durable, errors
from argus_celery.errors import NoClaim
from argus_celery.flow.dispatch import dispatch
from argus_celery.records import AttemptOutcome, TaskState
from argus_celery.store import reports
from tests.integration.embedded import Shop, shop, until

pytestmark = pytest.mark.redis


@pytest.fixture
def bench(sqlite_store_url: str, redis_broker: str) -> Shop:
    return shop(sqlite_store_url, redis_broker)


def task(bench: Shop, body: Callable[..., Any], **options: Any) -> Any:
    return durable(bench.app.task(shared=False, name=f"shop.{body.__name__}", **options)(body))


def suspended(bench: Shop, task_id: str) -> None:
    until(lambda: bench.task(task_id).suspended, 15, lambda: bench.task(task_id))


def pass_time(bench: Shop, seconds: float) -> None:
    bench.argus.runtime.store.clock_shift += round(seconds * 1000)
    dispatch(bench.argus.runtime)


def outcomes(bench: Shop, task_id: str) -> list[str]:
    return [str(one.outcome) for one in reports.attempt_rows(bench.argus.runtime.store, task_id)]


# --- sleeping -----------------------------------------------------------------------------------------------------


def test_a_task_sleeps_for_days_without_a_worker_and_goes_on_behind_its_steps(bench: Shop) -> None:
    def remind(order: int) -> str:
        bench.log.append("begin")
        address = current.step("look up", lambda: bench.log.append("look up") or f"{order}@example.org")
        current.sleep(days=3)
        bench.log.append("awake")
        return str(address)

    result = task(bench, remind).delay(17)
    with bench.worker(concurrency=1):
        suspended(bench, result.id)
        assert (result.state, bench.lease(result.id).holder) == (states.PENDING, "")
        pass_time(bench, 3 * 24 * 3600 - 60)
        assert bench.task(result.id).suspended
        pass_time(bench, 61)
        assert result.get(timeout=15) == "17@example.org"
    assert bench.log == ["begin", "look up", "begin", "awake"]
    assert outcomes(bench, result.id) == ["suspended", "succeeded"]


def test_a_loop_of_sleeps_numbers_them(bench: Shop) -> None:
    def poll() -> int:
        for number in range(3):
            current.step(f"ask {number}", bench.log.append, number)
            current.sleep(hours=1)
        return current.attempt

    result = task(bench, poll).delay()
    with bench.worker():
        for number in range(3):
            until(lambda number=number: bench.log == list(range(number + 1)), 15, lambda: bench.log)  # type: ignore[misc]
            suspended(bench, result.id)
            pass_time(bench, 3601)
        assert result.get(timeout=15) == 4
    assert bench.log == [0, 1, 2]


def test_a_sleep_that_a_deploy_puts_before_another_has_a_name_of_its_own(bench: Shop) -> None:
    deployed: list[bool] = []

    def remind() -> int:
        if deployed:
            current.sleep(hours=1, name="before the mail")
        current.sleep(hours=1)
        return current.attempt

    result = task(bench, remind).delay()
    with bench.worker():
        suspended(bench, result.id)
        deployed.append(True)
        pass_time(bench, 3601)
        until(lambda: len(outcomes(bench, result.id)) == 2)
        suspended(bench, result.id)
        pass_time(bench, 3601)
        assert result.get(timeout=15) == 3


def test_a_short_wait_is_sat_out(bench: Shop) -> None:
    def nap() -> int | None:
        current.sleep(0.05)
        current.sleep_until(datetime.now(UTC) + timedelta(milliseconds=50))
        current.sleep_until(datetime.now(UTC) - timedelta(days=1))
        current.sleep()
        return current.token

    result = task(bench, nap).delay()
    with bench.worker():
        assert result.get(timeout=15) == 2


def test_an_instant_is_slept_until_by_the_stores_clock(bench: Shop) -> None:
    instant = datetime.now(UTC) + timedelta(hours=2)

    def wake() -> None:
        current.sleep_until(instant)

    result = task(bench, wake).delay()
    with bench.worker():
        suspended(bench, result.id)
        found = bench.task(result.id).suspended
        assert found is not None
        assert found.until == round(instant.timestamp() * 1000)
        pass_time(bench, 7201)
        assert bench.ended(result.id).state is TaskState.SUCCEEDED


# --- events -------------------------------------------------------------------------------------------------------


def test_a_task_waits_for_an_event_and_reads_its_payload(bench: Shop) -> None:
    def publish(page: str) -> Any:
        bench.log.append("begin")
        return current.wait_for("approved", timeout=timedelta(days=7))

    project = bench.argus.project("site")
    results = [project.enqueue(task(bench, publish).s("a")), project.enqueue(bench.app.tasks["shop.publish"].s("b"))]
    with bench.worker():
        for result in results:
            suspended(bench, result.id)
        assert project.progress().suspended == 2
        assert project.send("approved", {"by": "Ann"})
        assert not project.send("approved", {"by": "Bob"})
        assert [result.get(timeout=15) for result in results] == [{"by": "Ann"}] * 2
        late = project.enqueue(bench.app.tasks["shop.publish"].s("c"))
        assert late.get(timeout=15) == {"by": "Ann"}
    assert outcomes(bench, late.id) == ["succeeded"]
    assert bench.log == ["begin"] * 5


def test_a_timeout_raises_or_gives_the_default_and_is_kept(bench: Shop) -> None:
    def ask() -> list[Any]:
        answers: list[Any] = [current.wait_for("one", timeout=60, default="none")]
        try:
            current.wait_for("two", timeout=0)
        except errors.WaitTimeout as error:
            answers.append(str(error))
        answers.append(current.wait_for("three", timeout=0.1, default=None))
        current.sleep(60)
        return answers

    result = task(bench, ask).delay()
    project = bench.argus.project("default")
    with bench.worker():
        suspended(bench, result.id)
        pass_time(bench, 61)
        until(lambda: len(outcomes(bench, result.id)) == 2)
        for event in ("one", "two", "three"):
            assert project.send(event, "late")
        suspended(bench, result.id)
        pass_time(bench, 61)
        one, two, three = result.get(timeout=15)
    assert (one, three) == ("none", None)
    assert "'two' did not come in time" in two


def test_a_brief_wait_hears_of_an_event_that_comes_within_it(bench: Shop) -> None:
    def ask() -> Any:
        bench.log.append("asks")
        return current.wait_for("answer", timeout=0.9)

    result = task(bench, ask).delay()
    with bench.worker():
        bench.until_logged("asks")
        bench.argus.project("default").send("answer", 42)
        assert result.get(timeout=15) == 42


def test_the_same_event_is_waited_for_twice_and_reads_the_same(bench: Shop) -> None:
    def twice() -> list[Any]:
        return [current.wait_for("approved", timeout=60, default="late"), current.wait_for("approved")]

    result = task(bench, twice).delay()
    with bench.worker():
        suspended(bench, result.id)
        pass_time(bench, 61)
        until(lambda: len(outcomes(bench, result.id)) == 2)
        suspended(bench, result.id)
        bench.argus.project("default").send("approved", 1)
        assert result.get(timeout=15) == ["late", 1]


def test_what_cannot_be_told_is_refused_before_anything_is_written(bench: Shop) -> None:
    project = bench.argus.project("site")
    for name in ("", "x" * 256, "ends ", 7):
        with pytest.raises(errors.BadEvent, match="the name of an event"):
            project.send(name)  # type: ignore[arg-type]
    with pytest.raises(errors.BadEvent, match="payload of the event 'approved'"):
        project.send("approved", object())
    with pytest.raises(errors.PayloadTooLarge, match="argus_max_payload"):
        project.send("approved", "x" * (bench.argus.settings.max_payload + 1))
    assert project.send("approved", "as it should be")
    project.close()
    with pytest.raises(errors.ProjectClosed, match="completed"):
        project.send("another")


def test_a_coroutine_tells_too(bench: Shop) -> None:
    project = bench.argus.project("site")
    assert asyncio.run(project.asend("approved", 1))
    assert not asyncio.run(project.asend("approved", 2))


# --- what Celery sees ---------------------------------------------------------------------------------------------


def test_no_outcome_is_told_of_a_run_that_waits(bench: Shop) -> None:
    def waiting() -> int:
        current.sleep(60)
        return 1

    def tell(name: str) -> Callable[..., None]:
        def receiver(sender: Any = None, task_id: str | None = None, state: str | None = None, **_: Any) -> None:
            if getattr(sender, "name", None) == "shop.waiting":
                bench.log.append((name, state) if state else name)

        return receiver

    heard = ("task_prerun", "task_postrun", "task_success", "task_failure", "task_retry")
    receivers = {name: tell(name) for name in heard}
    for name, receiver in receivers.items():
        getattr(signals, name).connect(receiver, weak=False)
    try:
        result = task(bench, waiting).apply_async(link=None)
        with bench.worker():
            suspended(bench, result.id)
            until(lambda: ("task_postrun", "IGNORED") in bench.log)
            assert bench.log == ["task_prerun", ("task_postrun", "IGNORED")]
            pass_time(bench, 61)
            assert result.get(timeout=15) == 1
            until(lambda: ("task_postrun", "SUCCESS") in bench.log)
    finally:
        for name, receiver in receivers.items():
            getattr(signals, name).disconnect(receiver)
    assert bench.log[2:] == ["task_prerun", "task_success", ("task_postrun", "SUCCESS")]


def test_chains_and_chords_go_on_behind_a_task_that_has_waited(bench: Shop) -> None:
    def slow(number: int) -> int:
        current.sleep(60)
        return number

    def double(number: int) -> int:
        return 2 * number

    def total(numbers: list[int]) -> int:
        return sum(numbers)

    slow_task, double_task, total_task = (task(bench, body) for body in (slow, double, total))
    chained = chain(slow_task.s(4), double_task.s())()
    fanned = chord([slow_task.s(1), double_task.s(2)], total_task.s())()
    with bench.worker():
        for id_ in (chained.parent.id, *(part.id for part in fanned.parent.results[:1])):
            suspended(bench, id_)
        pass_time(bench, 61)
        assert (chained.get(timeout=15), fanned.get(timeout=15)) == (8, 5)


def test_what_the_body_has_enqueued_before_it_waited_is_enqueued_once(bench: Shop) -> None:
    def child(number: int) -> None:
        bench.log.append(number)

    def parent() -> None:
        for number in (1, 1):
            bench.app.tasks["shop.child"].delay(number)
        current.sleep(60)
        bench.app.tasks["shop.child"].delay(2)

    task(bench, child)
    result = task(bench, parent).delay()
    with bench.worker():
        suspended(bench, result.id)
        pass_time(bench, 61)
        bench.ended(result.id)
        bench.drained()
    assert sorted(bench.log) == [1, 1, 2]


def test_a_retry_after_a_wait_does_not_wait_again(bench: Shop) -> None:
    def flaky(self: Any) -> int:
        current.sleep(60)
        if self.request.retries == 0:
            raise self.retry(countdown=0)
        return int(self.request.retries)

    result = task(bench, flaky, bind=True).delay()
    with bench.worker():
        suspended(bench, result.id)
        pass_time(bench, 61)
        assert result.get(timeout=15) == 1
    assert outcomes(bench, result.id) == ["suspended", "retried", "succeeded"]


def test_a_retry_behind_a_wait_does_not_expire_as_the_wait_did_not(bench: Shop) -> None:
    def onboard(self: Any) -> str:
        current.sleep(days=3)
        if self.request.retries == 0:
            raise self.retry(countdown=0)
        return "done"

    result = task(bench, onboard, bind=True).apply_async(expires=3600)
    with bench.worker():
        suspended(bench, result.id)
        pass_time(bench, 3 * 24 * 3600)
        assert result.get(timeout=20) == "done"
    assert outcomes(bench, result.id) == ["suspended", "retried", "succeeded"]


def test_a_late_ack_and_every_pool_without_children_wait_alike(bench: Shop) -> None:
    def waiting() -> int:
        current.sleep(60)
        return 1

    for pool in ("solo", "threads"):
        result = task(bench, waiting, acks_late=True).delay()
        with bench.worker(pool):
            suspended(bench, result.id)
            pass_time(bench, 61)
            assert result.get(timeout=15) == 1


# --- bodies that stand in the way ---------------------------------------------------------------------------------


def test_a_body_unwinds_before_it_waits(bench: Shop) -> None:
    def tidy() -> None:
        try:
            current.sleep(60)
        except Exception:
            bench.log.append("never")
        finally:
            bench.log.append(bool(bench.lease(str(current.task_id)).holder))

    result = task(bench, tidy).delay()
    with bench.worker():
        suspended(bench, result.id)
    assert bench.log == [True]


@pytest.mark.parametrize("how", ["returns", "raises", "retries"])
def test_a_body_that_swallows_the_end_of_its_run_ends_all_the_same(
    bench: Shop, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    def stubborn(self: Any) -> str:
        try:
            current.sleep(60)
        except BaseException:
            if how == "returns":
                return "in vain"
            if how == "raises":
                raise ValueError("in vain") from None
            raise self.retry(countdown=0) from None
        return "done"

    result = task(bench, stubborn, bind=True).delay()
    with caplog.at_level(logging.WARNING), bench.worker():
        suspended(bench, result.id)
        assert any(result.id in record.getMessage() and "Suspended" in record.getMessage() for record in caplog.records)
        pass_time(bench, 61)
        assert result.get(timeout=15) == "done"
    assert outcomes(bench, result.id) == ["suspended", "succeeded"]


def test_a_wait_inside_a_step_or_a_transaction_is_refused(bench: Shop) -> None:
    def misplaced() -> list[str]:
        told = []
        calls = (lambda: current.sleep(60), lambda: current.wait_for("approved"), lambda: current.sleep(0))
        for number, call in enumerate(calls):
            with pytest.raises(errors.BadStep, match="inside a step") as refused:
                current.step(f"outer {number}", call)
            told.append(str(refused.value))
            with pytest.raises(errors.BadStep, match="inside a transaction"), current.transaction():
                call()
        return told

    result = task(bench, misplaced).delay()
    with bench.worker():
        assert all(result.id in told for told in result.get(timeout=15))


def test_a_wait_that_is_none_is_refused(bench: Shop) -> None:
    def wrong() -> None:
        for call in (
            lambda: current.sleep(-1),
            lambda: current.sleep("soon"),  # type: ignore[arg-type]
            lambda: current.sleep(float("nan")),
            lambda: current.sleep(days=40_000),
            lambda: current.sleep(10**400),
            lambda: current.sleep(10**5000),
            lambda: current.sleep(True),
            lambda: current.sleep(minutes=float("inf")),
            lambda: current.sleep(days=timedelta(days=1)),  # type: ignore[arg-type]
            lambda: current.sleep_until(5),  # type: ignore[arg-type]
            lambda: current.sleep_until(datetime.max),
            lambda: current.sleep_until(datetime.max.replace(tzinfo=UTC)),
            lambda: current.wait_for("approved", timeout=-1),
            lambda: current.wait_for("approved", timeout=10**400),
            lambda: current.wait_for("approved", timeout=timedelta.max),
        ):
            with pytest.raises(errors.BadStep):
                call()
        with pytest.raises(errors.BadEvent):
            current.wait_for("")

    result = task(bench, wrong).delay()
    with bench.worker():
        assert bench.ended(result.id).state is TaskState.SUCCEEDED


def test_a_wait_outside_a_body_needs_a_claim(bench: Shop) -> None:
    def waiting(seconds: float) -> int:
        current.sleep(seconds)
        return 1

    body = task(bench, waiting)
    assert body(0.01) == body.apply((0.01,)).get() == 1
    with pytest.raises(errors.NoClaim, match=r"current\.sleep"):
        body(60)
    for call in (lambda: current.wait_for("approved"), lambda: current.sleep_until(datetime.now(UTC))):
        with pytest.raises(errors.NoClaim):
            call()


def test_a_wait_when_the_body_is_over_is_refused(bench: Shop) -> None:
    def brief() -> int:
        return 1

    def late(sender: Any = None, **_: Any) -> None:
        if sender.name == "shop.brief":
            with pytest.raises(errors.NoClaim) as refused:
                current.sleep(60)
            bench.log.append(str(refused.value))

    signals.task_success.connect(late, weak=False)
    try:
        result = task(bench, brief).delay()
        with bench.worker():
            assert result.get(timeout=15) == 1
            until(lambda: bench.log)
    finally:
        signals.task_success.disconnect(late)
    assert "while the body runs" in bench.log[0]


def test_a_wait_in_a_base_class_or_a_handler_before_the_body_is_one_of_the_task(bench: Shop) -> None:
    class Patient(bench.app.Task):  # type: ignore[name-defined,misc]
        abstract = True

        def before_start(self, *_: Any) -> None:
            current.sleep(60)

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            current.sleep(60)
            return self.run(*args, **kwargs)

    def last(number: int) -> int:
        current.sleep(60)
        return number

    result = task(bench, last, base=Patient).delay(3)
    with bench.worker():
        for _ in range(3):
            suspended(bench, result.id)
            pass_time(bench, 61)
            until(lambda: bench.task(result.id).suspended is None)
        assert result.get(timeout=15) == 3
    assert outcomes(bench, result.id) == ["suspended"] * 3 + ["succeeded"]


def test_a_task_that_is_applied_in_a_body_cannot_wait(bench: Shop) -> None:
    """Its steps are not kept: what it did before the wait would be done again."""

    def inner() -> int:
        current.sleep(60)
        return 2

    inner_task = task(bench, inner)

    def outer() -> int:
        return int(inner_task.apply().get()) + 1

    result = task(bench, outer).delay()
    with bench.worker(), pytest.raises(NoClaim, match="needs a worker to go on"):
        result.get(timeout=15)


# --- each, coroutines ---------------------------------------------------------------------------------------------


def test_a_loop_over_items_waits_in_each_and_goes_on_with_the_next(bench: Shop) -> None:
    def crawl() -> int:
        for page in current.each(["a", "b"], batch=10):
            current.step("fetch", bench.log.append, page)
            current.sleep(60)
        return current.attempt

    result = task(bench, crawl).delay()
    with bench.worker():
        for pages in (["a"], ["a", "b"]):
            until(lambda pages=pages: bench.log == pages, 15, lambda: bench.log)  # type: ignore[misc]
            suspended(bench, result.id)
            pass_time(bench, 61)
        assert result.get(timeout=15) == 3
    assert bench.log == ["a", "b"]


def test_a_coroutine_awaits_its_waits(sqlite_store_url: str, redis_broker: str) -> None:
    bench = shop(sqlite_store_url, redis_broker, lease_ttl=60)  # no run lapses, on however busy a machine

    async def conversation() -> Any:
        bench.log.append("begin")
        await current.sleep(0.01)
        await current.sleep(1)
        return await current.wait_for("answer")

    def talk() -> Any:
        return asyncio.run(conversation())

    result = task(bench, talk).delay()
    with bench.worker():
        until(lambda: len(outcomes(bench, result.id)) == 2, 60)
        suspended(bench, result.id)
        bench.argus.project("default").send("answer", 42)
        assert result.get(timeout=60) == 42
    assert bench.log == ["begin"] * 3


@pytest.mark.parametrize("together", ["gather", "group"])
def test_of_two_waits_side_by_side_one_is_over_after_the_other(bench: Shop, together: str) -> None:
    async def both() -> list[Any]:
        if together == "gather":
            return list(await asyncio.gather(current.wait_for("one"), current.wait_for("two")))
        async with asyncio.TaskGroup() as group:
            one, two = (group.create_task(_awaited(name)) for name in ("one", "two"))
        return [one.result(), two.result()]

    result = task(bench, both).delay()
    project = bench.argus.project("default")
    with bench.worker():
        for number, _ in enumerate(("first", "second"), 1):
            suspended(bench, result.id)
            waits_for = bench.task(result.id).suspended
            assert waits_for is not None
            assert project.send(str(waits_for.event), waits_for.event)
            until(lambda number=number: len(outcomes(bench, result.id)) > number or bench.task(result.id).state.ended)  # type: ignore[misc]
        assert result.get(timeout=15) == ["one", "two"]
    assert outcomes(bench, result.id) == ["suspended", "suspended", "succeeded"]


async def _awaited(event: str) -> Any:
    return await current.wait_for(event)


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_a_wait_that_a_coroutine_has_not_awaited_fails_the_task(bench: Shop) -> None:
    async def forgetful() -> None:
        current.sleep(60)

    def talk() -> None:
        asyncio.run(forgetful())

    result = task(bench, talk).delay()
    with bench.worker():
        assert "await current.sleep" in str(bench.ended(result.id).error)


def test_current_previous_tells_of_the_suspension(bench: Shop) -> None:
    def tell() -> Any:
        current.sleep(60)
        assert current.previous is not None
        return [current.previous.outcome == AttemptOutcome.SUSPENDED, current.previous.detail, current.attempt]

    result = task(bench, tell).delay()
    with bench.worker():
        suspended(bench, result.id)
        pass_time(bench, 61)
        was_suspended, detail, attempt = result.get(timeout=15)
    assert (was_suspended, attempt) == (True, 2)
    assert detail.startswith("sleeps until")
