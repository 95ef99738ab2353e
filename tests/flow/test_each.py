"""Loops: a later run goes on with the first item that was not finished."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context, copy_context
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from argus_celery import current
from argus_celery.errors import BadStep
from argus_celery.records import Claim
from tests.flow.conftest import FlowBench
from tests.flow.running import Log, begin, names, taken_over
from tests.store.bench import counted


class Killed(BaseException):
    """Stands for the end of the process."""


def crawl(log: Log, items: Any, killed_at: Any = None, **options: Any) -> None:
    for item in current.each(items, **options):
        if item == killed_at:
            raise Killed
        log.do(str(item))


def crawl_killed(bench: FlowBench, claim: Claim, log: Log, items: Any, at: Any, **options: Any) -> Claim:
    begin(bench, claim)
    with pytest.raises(Killed):
        crawl(log, items, at, **options)
    claim = taken_over(bench, claim)
    begin(bench, claim)
    return claim


def test_a_resumed_loop_goes_on_with_the_first_item_that_is_not_finished(bench: FlowBench, log: Log) -> None:
    crawl_killed(bench, bench.running(), log, "abcde", "d")
    crawl(log, "abcde")
    assert log == ["a", "b", "c", "d", "e"]


def test_items_are_known_by_their_values_in_whatever_order_they_come(bench: FlowBench, log: Log) -> None:
    crawl_killed(bench, bench.running(), log, [1, "1", 2, 3], 3)
    crawl(log, [3, 0, 2, "1", 1])
    assert log == ["1", "1", "2", "3", "0"]


def test_equal_items_are_numbered(bench: FlowBench, log: Log) -> None:
    crawl_killed(bench, bench.running(), log, "aabaZ", "Z")
    crawl(log, "aabaaZ")
    assert log == ["a", "a", "b", "a", "a", "Z"]


def test_a_batch_is_written_at_once_and_repeated_in_part_after_a_kill(bench: FlowBench, log: Log) -> None:
    claim = bench.running()
    begin(bench, claim)
    with counted(bench.store) as count:
        crawl(log, range(10), batch=4)
    assert count.transactions == 3
    log.clear()
    crawl_killed(bench, taken_over(bench, claim), log, "abcdefgh", "g", name="letters", batch=4)
    crawl(log, "abcdefgh", name="letters", batch=4)
    assert log == [*"abcdef", *"efgh"]


def test_a_batch_may_be_larger_than_a_statement(bench: FlowBench, log: Log) -> None:
    claim = bench.running()
    begin(bench, claim)
    crawl(log, range(1200), batch=1000)
    with current.transaction():
        crawl(log, range(600), batch=600)
    assert len(names(bench)) == 1800
    begin(bench, taken_over(bench, claim))
    crawl(log, range(1200), batch=1000)
    assert len(log) == 1800


def test_two_loops_are_two_though_their_items_are_equal(bench: FlowBench, log: Log) -> None:
    begin(bench, bench.running())
    crawl(log, "ab")
    crawl(log, "ab")
    assert log == ["a", "b", "a", "b"]


def test_steps_in_the_loop_belong_to_their_item(bench: FlowBench, log: Log) -> None:
    claim = bench.running()
    begin(bench, claim)
    for item in current.each("ab"):
        current.step("fetch", log.do, item)
        if item == "b":
            break
    current.step("fetch", log.do, "after")
    assert names(bench) == ['each["a"]', 'each["a"]/fetch', 'each["b"]/fetch', "fetch"]
    begin(bench, taken_over(bench, claim))
    for item in current.each("abc"):
        current.step("fetch", log.do, item)
    current.step("fetch", log.do, "after")
    assert log == ["a", "b", "after", "c"]


def test_a_loop_inside_a_step_that_fails_goes_on_when_the_step_is_called_again(bench: FlowBench, log: Log) -> None:
    begin(bench, bench.running())
    stops = ["b", "c", None]
    while stops:
        with suppress(Killed):
            current.step("all", lambda: crawl(log, "abc", stops.pop(0)))
    assert log == ["a", "b", "c"]


def test_values_of_many_kinds_are_known_again(bench: FlowBench, log: Log) -> None:
    items = [
        None,
        True,
        1.5,
        "x" * 500,
        b"\0\xff",
        [1, (2, 3)],
        {"b": 1, "a": {2, 3}},
        date(2026, 1, 1),
        datetime(2026, 1, 1, tzinfo=UTC),
        Decimal("1.10"),
        UUID(int=5),
    ]
    crawl_killed(bench, bench.running(), log, [*items, "Z"], "Z")
    done = len(log)
    crawl(log, items)
    assert len(log) == done == len(items)


def test_what_has_no_value_needs_a_key(bench: FlowBench, log: Log) -> None:
    begin(bench, bench.running())
    with pytest.raises(BadStep, match=r"each: object has no value .*; give each\(key=\.\.\.\)"):
        crawl(log, [object()])
    crawl(log, [object()], key=lambda _: "a", name="keyed")
    assert len(log) == 1


@pytest.mark.parametrize("batch", [0, True, "2", 2.0, 10**400])
def test_a_bad_batch_is_refused(bench: FlowBench, log: Log, batch: Any) -> None:
    begin(bench, bench.running())
    with pytest.raises(BadStep, match="batch"):
        crawl(log, "a", batch=batch)


def test_without_a_claim_steps_and_loops_just_run(bench: FlowBench, log: Log) -> None:
    assert current.step("a", log.do, "a", gives=(1, 2)) == (1, 2)
    crawl(log, [object()])
    assert len(log) == 2
    assert names(bench) == []


# --- where a loop is left ----------------------------------------------------------------------------------------


def left_by_break(log: Log) -> None:
    loop = current.each("ab")
    for item in loop:
        current.step("in", log.do, item)
        break


def left_by_return(log: Log) -> None:
    def inner() -> str:
        loop = current.each("ab")
        for item in loop:
            current.step("in", log.do, item)
            return item
        raise AssertionError("unreachable")

    inner()


def left_by_an_error(log: Log) -> None:
    loop = current.each("ab")
    try:
        for item in loop:
            current.step("in", log.do, item)
            raise KeyError(item)
    except KeyError as error:
        log.kept = (loop, error)  # type: ignore[attr-defined]


def left_by_the_error_of_a_caller(log: Log) -> None:
    def inner() -> None:
        for item in current.each("ab"):
            current.step("in", log.do, item)
            raise KeyError(item)

    try:
        inner()
    except KeyError as error:
        log.kept = error  # type: ignore[attr-defined]


def left_from_a_loop_inside(log: Log) -> None:
    def inner() -> None:
        outer = current.each("ab")
        for item in outer:
            loop = current.each([1, 2], name="inner")
            for _ in loop:
                current.step("in", log.do, item)
                return

    inner()


def left_through_a_wrapper(log: Log) -> None:
    loop = current.each("ab")
    for _, item in enumerate(loop):
        current.step("in", log.do, item)
        break


def left_through_a_generator(log: Log) -> None:
    def items() -> Any:
        yield from current.each("ab")

    for item in items():
        current.step("in", log.do, item)
        break


def left_through_a_generator_that_is_kept_and_closed(log: Log) -> None:
    def items() -> Any:
        yield from current.each("ab")

    kept = items()
    for item in kept:
        current.step("in", log.do, item)
        break
    kept.close()


def left_by_hand_from_outside(log: Log) -> None:
    outer = iter(current.each("ab"))
    item = next(outer)
    inner = iter(current.each([1, 2], name="inner"))
    next(inner)
    current.step("in", log.do, item)
    del outer
    current.step("behind", log.do, "behind the outer")
    del inner


LEFT = [
    left_by_break,
    left_by_return,
    left_by_an_error,
    left_by_the_error_of_a_caller,
    left_from_a_loop_inside,
    left_through_a_wrapper,
    left_through_a_generator,
    left_through_a_generator_that_is_kept_and_closed,
    left_by_hand_from_outside,
]


@pytest.mark.parametrize("leave", LEFT)
def test_what_stands_behind_a_loop_that_was_left_is_not_in_its_item(
    sqlite_bench: FlowBench, log: Log, leave: Callable[[Log], None]
) -> None:
    begin(sqlite_bench, sqlite_bench.running())
    leave(log)
    current.step("after", log.do, "after")
    inside = 'each["a"]/inner[1]/in' if "inside" in leave.__name__ or "hand" in leave.__name__ else 'each["a"]/in'
    assert {"after", inside} <= set(names(sqlite_bench)) <= {"after", inside, "behind"}


def test_a_loop_of_a_coroutine_that_is_kept_and_left_is_not_in_its_item(sqlite_bench: FlowBench, log: Log) -> None:
    async def body() -> None:
        loop = current.each(pages("ab"))
        async for item in loop:
            current.step("in", log.do, item)
            break
        current.step("after", log.do, "after")

    begin(sqlite_bench, sqlite_bench.running())
    asyncio.run(body())
    assert names(sqlite_bench) == ["after", 'each["a"]/in']


def test_who_asks_by_hand_is_in_the_item_until_it_asks_again_or_lets_go(sqlite_bench: FlowBench, log: Log) -> None:
    begin(sqlite_bench, sqlite_bench.running())
    items = iter(current.each("ab"))
    for _ in range(2):
        next(items)
        current.step("in", log.do, "in")
    del items
    current.step("after", log.do, "after")
    assert names(sqlite_bench) == ["after", 'each["a"]', 'each["a"]/in', 'each["b"]/in']


def test_a_loop_is_named_where_it_is_looped_over(sqlite_bench: FlowBench, log: Log) -> None:
    """Not where it was made: steps in its items would be numbered, and read each other's values."""

    def act(loop: Any, killed_at: str | None) -> None:
        for item in loop:
            current.step("fetch", log.do, item)
            if item == killed_at:
                raise Killed

    claim = sqlite_bench.running()
    begin(sqlite_bench, claim)
    with pytest.raises(Killed):
        current.step("act", act, current.each("abc"), "b")
    begin(sqlite_bench, taken_over(sqlite_bench, claim))
    current.step("act", act, current.each("abc"), None)
    assert log == ["a", "b", "c"]
    assert [name for name in names(sqlite_bench) if "fetch" in name] == [f'act/each["{one}"]/fetch' for one in "abc"]


# --- what finishes another's item --------------------------------------------------------------------------------


def test_a_loop_is_gone_through_once(sqlite_bench: FlowBench, log: Log) -> None:
    begin(sqlite_bench, sqlite_bench.running())
    loop = current.each("abc")
    for item in loop:
        if item == "b":
            break
    with pytest.raises(
        BadStep, match=r"the loop 'each' was begun already.* call current\.each\(\.\.\.\) for each loop"
    ):
        list(loop)
    assert names(sqlite_bench) == ['each["a"]']


def test_coroutines_cannot_share_a_loop(sqlite_bench: FlowBench) -> None:
    async def body(loop: Any) -> None:
        async def worker() -> None:
            async for _ in loop:
                await asyncio.sleep(0)

        first, *others = await asyncio.gather(*(worker() for _ in range(3)), return_exceptions=True)
        assert first is None
        assert all(isinstance(one, BadStep) for one in others)

    begin(sqlite_bench, sqlite_bench.running())
    asyncio.run(body(current.each(range(5))))
    asyncio.run(body(aiter(current.each(range(5), name="shared"))))
    assert len(names(sqlite_bench)) == 10


def test_threads_cannot_share_a_loop(sqlite_bench: FlowBench) -> None:
    begin(sqlite_bench, sqlite_bench.running())
    items = iter(current.each(range(5)))
    assert next(items) == 0
    with ThreadPoolExecutor(1) as pool:
        for context in (copy_context(), Context()):
            with pytest.raises(BadStep, match="asked for items by two threads or coroutines"):
                pool.submit(context.run, next, items).result()
    assert names(sqlite_bench) == []
    assert list(items) == [1, 2, 3, 4]


@pytest.mark.parametrize("where", ["step", "transaction"])
def test_the_next_item_is_asked_for_where_the_loop_began(sqlite_bench: FlowBench, where: str) -> None:
    begin(sqlite_bench, sqlite_bench.running())
    items = iter(current.each(range(5)))
    assert next(items) == 0
    refused = pytest.raises(BadStep, match="began outside of the step or transaction")
    if where == "step":
        with refused:
            current.step("ask", lambda: next(items))
    else:
        with refused, current.transaction():
            next(items)
    assert names(sqlite_bench) == []


# --- batches and transactions ------------------------------------------------------------------------------------


def test_finished_items_of_a_batch_outlive_the_rollback_of_a_transaction_in_the_loop(
    bench: FlowBench, log: Log
) -> None:
    def body(killed_at: str | None) -> None:
        for item in current.each("abcd", batch=10):
            if item == killed_at:
                raise Killed
            log.do(item)
            with suppress(KeyError), current.transaction():
                for part in current.each([1, 2], name="parts"):
                    log.do(f"{item}{part}")
                raise KeyError

    claim = bench.running()
    run = begin(bench, claim)
    with pytest.raises(Killed):
        body("d")
    run.steps.flush()  # as whatever ends a run does
    assert names(bench) == [f'each["{item}"]' for item in "abc"]
    log.clear()
    begin(bench, taken_over(bench, claim))
    body(None)
    assert log == ["d", "d1", "d2"]


def test_finished_items_of_a_batch_outlive_the_rollback_to_a_savepoint_in_the_loop(bench: FlowBench, log: Log) -> None:
    begin(bench, bench.running())
    with current.transaction():
        for item in current.each("ab", batch=10):
            with suppress(KeyError), current.transaction():
                for part in current.each([1, 2], name="parts"):
                    current.step("part", log.do, f"{item}{part}")
                raise KeyError
    assert names(bench) == ['each["a"]', 'each["b"]']


def test_finished_items_of_a_loop_that_is_left_in_a_transaction_commit_with_it(bench: FlowBench, log: Log) -> None:
    begin(bench, bench.running())
    with current.transaction():
        for item in current.each("abcd", batch=10):
            if item == "c":
                break
        assert names(bench) == []
    assert names(bench) == ['each["a"]', 'each["b"]']


# --- asyncio -----------------------------------------------------------------------------------------------------


async def pages(items: str) -> AsyncIterator[str]:
    for item in items:
        await asyncio.sleep(0)
        yield item


async def acrawl(log: Log, items: Any, killed_at: Any = None) -> None:
    async def fetch(item: str) -> Any:
        return log.do(item)

    async for item in current.each(items, batch=2):
        await current.step("fetch", fetch, item)
        if item == killed_at:
            raise Killed


@pytest.mark.parametrize("source", [pages, list])
def test_a_loop_of_a_coroutine_is_resumed(bench: FlowBench, log: Log, source: Any) -> None:
    claim = bench.running()
    begin(bench, claim)
    with pytest.raises(Killed):
        asyncio.run(acrawl(log, source("abcde"), "d"))
    begin(bench, taken_over(bench, claim))
    asyncio.run(acrawl(log, source("abcde")))
    assert log == ["a", "b", "c", "d", "e"]
    assert [name for name in names(bench) if "/" not in name] == [f'each["{item}"]' for item in "abcde"]


def test_what_comes_asynchronously_needs_an_asynchronous_loop(bench: FlowBench) -> None:
    begin(bench, bench.running())
    with pytest.raises(BadStep, match="async for"):
        list(current.each(pages("ab")))


def test_what_comes_in_both_ways_takes_either_loop(sqlite_bench: FlowBench, log: Log) -> None:
    class Query:
        """As of Django."""

        def __iter__(self) -> Iterator[str]:
            return iter("ab")

        def __aiter__(self) -> AsyncIterator[str]:
            return pages("ab")

    begin(sqlite_bench, sqlite_bench.running())
    crawl(log, Query())
    asyncio.run(acrawl(log, Query()))
    assert log == ["a", "b", "a", "b"]


def test_without_a_claim_an_asynchronous_loop_just_runs(log: Log) -> None:
    asyncio.run(acrawl(log, pages("ab")))
    assert log == ["a", "b"]


def test_loops_side_by_side_record_each_of_their_items_once(bench: FlowBench) -> None:
    async def body() -> None:
        async def loop(name: str) -> None:
            async for _ in current.each(range(20), name=name):
                await asyncio.sleep(0)

        await asyncio.gather(*(loop(f"loop {number}") for number in range(4)))

    claim = bench.running()
    begin(bench, claim)
    asyncio.run(body())
    assert len(names(bench)) == 80
