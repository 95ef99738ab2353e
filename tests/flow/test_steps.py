"""Steps: done once, and read by whoever goes on with the task."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from threading import Event, current_thread, main_thread
from typing import Any

import pytest
import sqlalchemy as sa

from argus_celery import current, step
from argus_celery.errors import BadStep, LeaseLost, PayloadTooLarge, StoreUnavailable
from argus_celery.flow.lapse import lapse
from argus_celery.store import leases, steps
from argus_celery.store.schema import steps as table
from tests.flow.conftest import FlowBench
from tests.flow.faults import UnluckyStore, meanwhile
from tests.flow.running import Log, begin, names, taken_over
from tests.store.bench import counted


def test_a_step_runs_once_and_a_later_run_reads_it(bench: FlowBench, log: Log) -> None:
    claim = bench.running()
    begin(bench, claim)
    assert current.step("fetch", log.do, "a") == "a"
    begin(bench, taken_over(bench, claim))
    assert current.step("fetch", log.do, "a") == "a"
    assert current.step("store", log.do, "b", gives={"rows": [1, 2]}) == {"rows": [1, 2]}
    assert log == ["a", "b"]


def test_steps_are_known_by_name_in_whatever_order_they_come(bench: FlowBench, log: Log) -> None:
    claim = bench.running()
    begin(bench, claim)
    current.step("one", log.do, "1")
    current.step("two", log.do, "2")
    begin(bench, taken_over(bench, claim))
    assert [current.step(name, log.do, "new") for name in ("zero", "two", "one")] == ["new", "2", "1"]


def test_the_first_run_reads_nothing_and_a_later_one_once(bench: FlowBench, log: Log) -> None:
    claim = bench.running()
    begin(bench, claim)
    with counted(bench.store) as count:
        for n in range(3):
            current.step(f"step {n}", log.do, str(n))
    assert (count.transactions, count.statements) == (3, 3)
    begin(bench, taken_over(bench, claim))
    with counted(bench.store) as count:
        for n in range(4):
            current.step(f"step {n}", log.do, str(n))
    assert (count.transactions, count.statements) == (1, 2)


def test_a_large_value_is_read_back(bench: FlowBench, log: Log) -> None:
    claim = bench.running()
    begin(bench, claim)
    large = "x" * 100_000
    current.step("large", log.do, "a", gives=large)
    begin(bench, taken_over(bench, claim))
    assert current.step("large", log.do, "b") == large
    assert log == ["a"]


def test_what_a_step_gives_is_what_a_later_run_will_read(bench: FlowBench, log: Log) -> None:
    claim = bench.running()
    begin(bench, claim)
    first = current.step("pair", log.do, "a", gives=(1, 2))
    begin(bench, taken_over(bench, claim))
    assert first == current.step("pair", log.do, "a") == [1, 2]


def test_the_same_name_again_is_numbered(bench: FlowBench, log: Log) -> None:
    claim = bench.running()
    begin(bench, claim)
    assert [current.step("fetch", log.do, tag) for tag in "abc"] == ["a", "b", "c"]
    assert names(bench) == ["fetch", "fetch#2", "fetch#3"]
    begin(bench, taken_over(bench, claim))
    assert [current.step("fetch", log.do, tag) for tag in "abcd"] == ["a", "b", "c", "d"]


def test_a_name_that_looks_like_another_steps_is_a_step_of_its_own(bench: FlowBench, log: Log) -> None:
    @step(key="args.number")
    def fetch(number: int) -> str:
        return str(log.do(f"fetch {number}"))

    def body() -> None:
        for name in ("fetch#2", "outer/fetch", "each[1]", "each[1]/fetch", "wait told", "sleep"):
            current.step(name, log.do, name)
        for what in ("first", "second"):
            current.step("fetch", log.do, what)
        current.step("outer", lambda: current.step("fetch", log.do, "inner"))
        fetch(1)
        for item in current.each([1], name=fetch.__qualname__):
            log.do(f"item {item}")
        for _ in current.each([1]):
            current.step("fetch", log.do, "in the loop")
        current.sleep(0.001)
        assert current.wait_for("told", timeout=0.001, default=5) == 5

    claim = bench.running()
    for _ in range(2):
        begin(bench, claim).in_body = True
        body()
        claim = taken_over(bench, claim)
    assert len(log) == len(set(log)) == 12
    assert len(names(bench)) == 15


def test_another_function_under_a_name_is_refused(bench: FlowBench, log: Log) -> None:
    begin(bench, bench.running())
    current.step("fetch", log.do, "a")
    with pytest.raises(BadStep, match=r"'fetch' has called .*Log\.do in this run, and now .*Log\.fail"):
        current.step("fetch", log.fail, "b")
    with pytest.raises(BadStep, match=r"now .*<lambda> of line \d+"):
        current.step("fetch", lambda: log.do("b"))
    assert log == ["a"]


def test_a_failed_step_is_not_kept_and_its_name_is_free_again(bench: FlowBench, log: Log) -> None:
    claim = bench.running()
    begin(bench, claim)
    log.failing = {"a"}
    for _ in range(2):
        with pytest.raises(ValueError, match="a"):
            current.step("fetch", log.do, "a")
    assert names(bench) == []
    log.failing = set()
    current.step("fetch", log.do, "a")
    begin(bench, taken_over(bench, claim))
    assert current.step("fetch", log.fail, "c") == "a"


@pytest.mark.parametrize("name", ["", "x" * 256, "nul\0", "blank ", 5])
def test_a_bad_name_is_refused_before_anything_is_done(bench: FlowBench, log: Log, name: Any) -> None:
    begin(bench, bench.running())
    with pytest.raises(BadStep, match="the name of a step"):
        current.step(name, log.do, "a")
    assert log == []


def test_a_value_that_cannot_be_kept_is_told_so(bench: FlowBench, log: Log) -> None:
    begin(bench, bench.running())
    with pytest.raises(BadStep, match=r"the step 'odd' has run, but its value cannot be kept .*object"):
        current.step("odd", log.do, "a", gives=object())
    with pytest.raises(PayloadTooLarge, match=r"the step 'big' has run, .* 1048579 bytes, above argus_max_payload"):
        current.step("big", log.do, "b", gives="x" * (2**20 + 1))
    assert (log, names(bench)) == (["a", "b"], [])


def test_a_value_that_cannot_be_read_says_what_to_do(bench: FlowBench, log: Log) -> None:
    claim = bench.running()
    begin(bench, claim)
    current.step("odd", log.do, "a")
    bench.store.transaction(lambda connection: connection.execute(sa.update(table).values(value=b"{")))
    begin(bench, taken_over(bench, claim))
    with pytest.raises(BadStep, match=r"'odd' cannot be read .*restart\(\)"):
        current.step("odd", log.do, "a")


def test_a_run_that_lost_its_lease_keeps_nothing(bench: FlowBench, log: Log) -> None:
    claim = bench.running()
    run = begin(bench, claim)
    taken_over(bench, claim)
    with pytest.raises(LeaseLost):
        current.step("late", log.do, "a")
    assert run.lost.is_set()
    assert names(bench) == []


def test_who_takes_over_waits_for_a_step_that_is_being_recorded(bench: FlowBench, other: FlowBench) -> None:
    if bench.store.dialect_name == "sqlite":
        pytest.skip("SQLite has one writer")
    claim = bench.running()
    bench.pass_time(7)
    other.pass_time(7)

    def insert(connection: Any) -> None:
        assert steps.insert(bench.store, connection, claim, {"one": b"1"})

    meanwhile(bench.store, insert, lambda: lapse(other.rt, claim.holder, claim.task_id, claim.token, "gone"))
    assert names(bench) == ["one"]


def test_a_step_whose_answer_was_lost_is_recorded(bench: FlowBench, log: Log) -> None:
    claim = bench.running()
    begin(bench, claim)
    bench.store.lose_answers = 1
    assert current.step("one", log.do, "a") == "a"
    assert names(bench) == ["one"]


def test_a_store_that_is_away_is_waited_for_while_a_step_is_recorded(bench: FlowBench, log: Log) -> None:
    begin(bench, bench.running())
    bench.store.away = True
    with ThreadPoolExecutor(1) as pool:
        recording = pool.submit(copy_context().run, current.step, "one", log.do, "a")
        while not bench.store.turned_away:
            time.sleep(0.01)
        bench.store.away = False
        assert recording.result(timeout=30) == "a"
    assert names(bench) == ["one"]


def test_a_run_that_loses_its_lease_while_the_store_is_away_waits_no_longer(bench: FlowBench, log: Log) -> None:
    run = begin(bench, bench.running())
    bench.store.away = True
    with ThreadPoolExecutor(1) as pool:
        recording = pool.submit(copy_context().run, current.step, "one", log.do, "a")
        while not bench.store.turned_away:
            time.sleep(0.01)
        run.lost.set()
        with pytest.raises(LeaseLost):
            recording.result(timeout=30)
    bench.store.away = False
    assert names(bench) == []


# --- inside each other -------------------------------------------------------------------------------------------


def test_a_step_inside_a_step_is_named_under_it_and_kept_though_the_outer_fails(bench: FlowBench, log: Log) -> None:
    claim, fails = bench.running(), True

    def outer() -> str:
        value = current.step("inner", log.do, "inner")
        if fails:
            raise ValueError
        return f"outer of {value}"

    begin(bench, claim)
    for _ in range(2):  # in this run the inner step is read as well
        with pytest.raises(ValueError):
            current.step("outer", outer)
    assert names(bench) == ["outer/inner"]
    fails = False
    begin(bench, taken_over(bench, claim))
    assert current.step("outer", outer) == "outer of inner"
    assert log == ["inner"]
    assert names(bench) == ["outer", "outer/inner"]


def test_a_path_that_grows_too_long_ends_with_its_digest(bench: FlowBench, log: Log) -> None:
    claim, name = bench.running(), "x" * 200

    def outer() -> list[str]:
        return [current.step(f"{name}{n}", log.do, str(n)) for n in range(3)]

    begin(bench, claim)
    with pytest.raises(LookupError):
        current.step(name, lambda: outer() and {}["stop"])
    assert len(names(bench)) == 3
    assert max(map(len, names(bench))) <= 255
    begin(bench, taken_over(bench, claim))
    assert current.step(name, outer) == ["0", "1", "2"]
    assert log == ["0", "1", "2"]


# --- in a transaction --------------------------------------------------------------------------------------------


def effects(bench: FlowBench) -> list[str]:
    return bench.store.statement(lambda c: sorted(row[0] for row in c.exec_driver_sql("SELECT tag FROM effects")))


@pytest.fixture
def effect(bench: FlowBench, log: Log) -> Any:
    bench.store.transaction(lambda c: c.exec_driver_sql("CREATE TABLE effects (tag VARCHAR(20))"))

    def write(connection: Any, tag: str) -> str:
        connection.execute(sa.text("INSERT INTO effects VALUES (:tag)"), {"tag": tag})
        return str(log.do(tag))

    return write


def test_a_step_in_a_transaction_commits_with_it(bench: FlowBench, log: Log, effect: Any) -> None:
    claim = bench.running()
    begin(bench, claim)
    with current.transaction() as connection:
        current.step("pay", effect, connection, "paid")
    begin(bench, taken_over(bench, claim))
    with current.transaction() as connection:
        assert current.step("pay", effect, connection, "paid") == "paid"
    assert (effects(bench), log) == (["paid"], ["paid"])


def test_a_step_is_rolled_back_with_its_transaction_and_done_again(bench: FlowBench, log: Log, effect: Any) -> None:
    claim = bench.running()
    begin(bench, claim)
    for fails in (True, True, False):
        try:
            with current.transaction() as connection:
                current.step("pay", effect, connection, "paid")
                if fails:
                    raise ValueError
        except ValueError:
            assert (effects(bench), names(bench)) == ([], [])
    assert (effects(bench), names(bench)) == (["paid"], ["pay"])
    begin(bench, taken_over(bench, claim))
    with current.transaction() as connection:
        current.step("pay", effect, connection, "paid")
    assert log == ["paid"] * 3


def test_a_step_of_a_transaction_whose_answer_was_lost_is_not_done_again(
    bench: FlowBench, log: Log, effect: Any
) -> None:
    begin(bench, bench.running())
    for _ in range(2):
        bench.store.lose_answers = 0 if log else 1
        with suppress(StoreUnavailable), current.transaction() as connection:
            assert current.step("pay", effect, connection, "paid") == "paid"
    assert (effects(bench), log) == (["paid"], ["paid"])


def test_steps_inside_a_step_of_a_transaction_are_read_when_it_is_called_again(
    bench: FlowBench, log: Log, effect: Any
) -> None:
    claim = bench.running()

    def pay(connection: Any) -> str:
        current.step("inner", effect, connection, "paid")
        if "failed" not in log:
            log.fail("failed")
        return "done"

    begin(bench, claim)
    with current.transaction() as connection:
        with pytest.raises(ValueError):
            current.step("pay", pay, connection)
        assert current.step("pay", pay, connection) == "done"
    assert current.step("after", log.do, "after") == "after"
    assert (effects(bench), names(bench)) == (["paid"], ["after", "pay", "pay/inner"])
    assert log == ["paid", "failed", "after"]


def test_a_transaction_of_a_run_that_lost_its_lease_leaves_no_step(bench: FlowBench, log: Log, effect: Any) -> None:
    claim = bench.running()
    begin(bench, claim)
    taken_over(bench, claim)
    with pytest.raises(LeaseLost), current.transaction() as connection:
        current.step("pay", effect, connection, "paid")
    assert (effects(bench), names(bench), log) == ([], [], [])


# --- asyncio and threads -----------------------------------------------------------------------------------------


async def fetch(log: Log, what: str) -> Any:
    await asyncio.sleep(0)
    return log.do(what)


def test_a_step_of_a_coroutine_is_awaited_and_read_back(bench: FlowBench, log: Log) -> None:
    async def body() -> list[Any]:
        one = await current.step("one", fetch, log, "a")
        return [one, *await asyncio.gather(*(current.step(f"page {n}", fetch, log, str(n)) for n in range(3)))]

    claim = bench.running()
    begin(bench, claim)
    assert asyncio.run(body()) == ["a", "0", "1", "2"]
    begin(bench, taken_over(bench, claim))
    assert asyncio.run(body()) == ["a", "0", "1", "2"]
    assert sorted(log) == ["0", "1", "2", "a"]


def test_steps_of_one_name_that_run_at_once_are_numbered_in_the_order_of_their_calls(
    bench: FlowBench, log: Log
) -> None:
    async def body() -> list[Any]:
        return await asyncio.gather(*(current.step("page", fetch, log, str(n)) for n in range(3)))

    claim = bench.running()
    begin(bench, claim)
    asyncio.run(body())
    begin(bench, taken_over(bench, claim))
    assert asyncio.run(body()) == ["0", "1", "2"]


def test_who_is_cancelled_while_a_step_is_recorded_keeps_it(bench: FlowBench, other: FlowBench, log: Log) -> None:
    claim = bench.running()
    begin(bench, claim)

    async def body() -> Any:
        step = asyncio.ensure_future(current.step("one", fetch, log, "a"))
        with other.store.open() as connection:
            leases.lock_held(other.store, connection, claim.holder, [(claim.task_id, claim.token)])
            while not log:
                await asyncio.sleep(0.01)
            step.cancel()
            await asyncio.sleep(0.1)
        with pytest.raises(asyncio.CancelledError):
            await step
        return await current.step("one", fetch, log, "a")

    assert asyncio.run(body()) == "a"
    assert log == ["a"]


def test_a_function_that_gives_something_to_be_awaited_is_refused(bench: FlowBench, log: Log) -> None:
    begin(bench, bench.running())
    with pytest.raises(BadStep, match="hand over the coroutine function itself"):
        current.step("one", lambda: fetch(log, "a"))


def test_threads_that_bear_the_context_of_the_body_record_steps(bench: FlowBench, log: Log) -> None:
    claim = bench.running()

    def body() -> list[Any]:
        with ThreadPoolExecutor(4) as pool:
            running = [pool.submit(copy_context().run, current.step, f"page {n}", log.do, str(n)) for n in range(20)]
            return [one.result() for one in running]

    begin(bench, claim)
    first = body()
    begin(bench, taken_over(bench, claim))
    assert body() == first == [str(n) for n in range(20)]
    assert len(log) == 20


def test_threads_that_take_one_name_get_a_number_each(bench: FlowBench, log: Log) -> None:
    begin(bench, bench.running())
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(
                lambda context: context.run(current.step, "page", log.do, "x"), [copy_context() for _ in range(40)]
            )
        )
    assert len(names(bench)) == 40


def test_what_a_failed_step_has_recorded_while_another_thread_was_reading_is_known(
    bench: FlowBench, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, go_on = Event(), Event()

    def statement(work: Any) -> Any:
        answer = UnluckyStore.statement(bench.store, work)
        if current_thread() is not main_thread() and not read.is_set():
            read.set()
            assert go_on.wait(30)
        return answer

    def outer() -> str:
        current.step("inner", log.do, "inner")
        return str(log.do("last"))

    claim = bench.running()
    begin(bench, taken_over(bench, claim))
    monkeypatch.setattr(bench.store, "statement", statement)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(copy_context().run, current.step, "other", log.do, "other")
        assert read.wait(30)
        log.failing = {"last"}
        with pytest.raises(ValueError):
            current.step("outer", outer)
        go_on.set()
        reading.result(timeout=30)
    log.failing = set()
    assert current.step("outer", outer) == "last"
    assert sorted(log) == ["inner", "last", "last", "other"]


def test_what_a_failed_step_of_a_transaction_has_recorded_is_known_though_another_thread_reads(
    bench: FlowBench, log: Log
) -> None:
    def pay() -> str:
        current.step("inner", log.do, "inner")
        return str(log.do("last"))

    run, outside = begin(bench, taken_over(bench, bench.running())), copy_context()
    with ThreadPoolExecutor(1) as pool, current.transaction():
        log.failing = {"last"}
        with pytest.raises(ValueError):
            current.step("pay", pay)
        pool.submit(outside.run, run.steps.load).result(timeout=30)
        log.failing = set()
        assert current.step("pay", pay) == "last"
    assert current.step("after", log.do, "after") == "after"
    assert log == ["inner", "last", "last", "after"]
