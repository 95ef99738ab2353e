"""Loops: a later run goes on with the first item that was not finished."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
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
    for at in ("b", "c", None):
        try:
            current.step("all", crawl, log, "abc", at)
        except Killed:
            continue
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


@pytest.mark.parametrize("batch", [0, True, "2"])
def test_a_bad_batch_is_refused(bench: FlowBench, log: Log, batch: Any) -> None:
    begin(bench, bench.running())
    with pytest.raises(BadStep, match="batch"):
        crawl(log, "a", batch=batch)


def test_without_a_claim_steps_and_loops_just_run(bench: FlowBench, log: Log) -> None:
    assert current.step("a", log.do, "a", gives=(1, 2)) == (1, 2)
    crawl(log, [object()])
    assert len(log) == 2
    assert names(bench) == []


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
