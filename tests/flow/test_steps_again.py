"""A step that has failed is asked for again: by its repeat, or for another thing."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from io import StringIO
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
from sqlalchemy import orm

from argus_celery import current, step
from argus_celery.errors import BadStep
from tests.flow.conftest import FlowBench
from tests.flow.running import Log, begin, names, taken_over


def test_a_step_that_failed_for_one_thing_is_refused_for_another(bench: FlowBench, log: Log) -> None:
    run = begin(bench, bench.running())
    log.failing = {"bad"}
    with pytest.raises(ValueError):
        current.step("fetch", log.do, "bad")
    for what in ("b", "c"):
        with pytest.raises(
            BadStep, match=r"'fetch' was called and not done, and is called now with other arguments.*key="
        ):
            current.step("fetch", log.do, what)
    assert (log, names(bench)) == (["bad"], [])
    assert run.steps.names.refused is not None


@pytest.mark.parametrize("named", ["by its thing", "by key"])
def test_things_that_have_names_of_their_own_may_fail_and_be_passed_over(
    bench: FlowBench, log: Log, named: str
) -> None:
    @step(key="args.what")
    def fetch(what: str) -> Any:
        return log.do(what)

    def body() -> list[Any]:
        out = []
        for what in ("bad", "b", "c"):
            with suppress(ValueError):
                out.append(fetch(what) if named == "by key" else current.step(f"fetch {what}", log.do, what))
        return out

    claim = bench.running()
    begin(bench, claim)
    log.failing = {"bad"}
    assert body() == ["b", "c"]
    again = taken_over(bench, claim)
    begin(bench, again)
    assert body() == ["b", "c"]
    log.failing = set()
    begin(bench, taken_over(bench, again, "w3"))
    assert body() == ["bad", "b", "c"]
    assert log == ["bad", "b", "c", "bad", "bad"]


def test_with_a_key_the_repeat_may_be_given_anything(bench: FlowBench, log: Log) -> None:
    @step(key=lambda attempt: "order 5")
    def pay(attempt: str) -> Any:
        return log.do(attempt)

    claim = bench.running()
    begin(bench, claim)
    log.failing = {"first"}
    with pytest.raises(ValueError):
        pay("first")
    assert pay("second") == "second"
    begin(bench, taken_over(bench, claim))
    assert pay("first") == "second"


def test_the_other_call_is_refused_in_a_loop_inside_and_in_a_transaction_too(bench: FlowBench, log: Log) -> None:
    log.failing = {"bad"}

    def both() -> None:
        with suppress(ValueError):
            current.step("fetch", log.do, "bad")
        with pytest.raises(BadStep):
            current.step("fetch", log.do, "b")

    begin(bench, bench.running())
    for _ in current.each("a"):
        both()
    current.step("outer", both)
    with current.transaction():
        both()
    assert "b" not in log


def test_what_was_rolled_back_is_not_passed_over_for_another_thing(bench: FlowBench, log: Log) -> None:
    begin(bench, bench.running())

    def save(what: str, ends: Callable[[], Any] = lambda: None) -> None:
        with current.transaction() as connection:
            current.step("save", save_by, connection, what)
            ends()

    def save_by(connection: Any, what: str) -> None:
        log.do(what)

    with pytest.raises(ZeroDivisionError):
        save("a", lambda: 1 / 0)
    with pytest.raises(BadStep):
        save("b")
    save("a")  # by another connection
    save("b")
    assert (log, names(bench)) == (["a", "a", "b"], ["save", "save#2"])


def test_loops_of_what_was_rolled_back_are_told_apart_by_what_they_go_through(bench: FlowBench, log: Log) -> None:
    begin(bench, bench.running())

    def all_of(items: list[str], ends: Callable[[], Any] = lambda: None) -> None:
        with current.transaction():
            for item in current.each(items):
                log.do(item)
            ends()

    with pytest.raises(ZeroDivisionError):
        all_of(["a", "b"], lambda: 1 / 0)
    with pytest.raises(BadStep):
        all_of(["c"])
    all_of(["a", "b"])
    assert log == ["a", "b", "a", "b"]


def test_a_step_that_is_called_again_begins_inside_from_its_beginning(bench: FlowBench, log: Log) -> None:
    """Also where a step inside it has failed and was not called again."""
    begin(bench, bench.running())
    log.failing = {"x", "last"}

    def outer() -> None:
        current.step("one", log.do, "one")
        with suppress(ValueError):
            current.step("inner", log.do, "x")
        current.step("last", log.do, "last")

    with pytest.raises(ValueError):
        current.step("outer", outer)
    log.failing = set()
    current.step("outer", outer)
    assert log == ["one", "x", "last", "x", "last"]
    assert names(bench) == ["outer", "outer/inner", "outer/last", "outer/one"]


def test_of_steps_at_once_each_repeat_finds_its_own(bench: FlowBench, log: Log) -> None:
    async def fetch(what: str) -> Any:
        await asyncio.sleep(0.01 if what == "a" else 0)
        return log.do(what)

    async def until_it_works(what: str) -> Any:
        for _ in range(2):
            with suppress(ValueError):
                return await current.step("fetch", fetch, what)
            log.failing.discard(what)
        return None

    async def body() -> list[Any]:
        return list(await asyncio.gather(*map(until_it_works, "abc")))

    claim = bench.running()
    begin(bench, claim)
    log.failing = {"a", "b"}
    assert asyncio.run(body()) == ["a", "b", "c"]
    begin(bench, taken_over(bench, claim))
    assert asyncio.run(body()) == ["a", "b", "c"]
    assert sorted(log) == ["a", "a", "b", "b", "c"]


class Order:
    """Compared as an object, as those of an ORM are."""

    def __init__(self, number: int = 1) -> None:
        self.number = number

    def ship(self) -> None: ...


def _opened() -> Any:
    return sqlite3.connect(":memory:")


def _with_closure(what: Any) -> Callable[[], Any]:
    return lambda: what


def _with_default(what: Any) -> Callable[[], Any]:
    return lambda what=what: what


_engine, _elsewhere = sa.create_engine("sqlite://"), sa.create_engine("sqlite://")
_order, _many = Order(), list(range(1000))
_grown: list[int] = []
_taken = [1, 2]
_holding: list[Any] = [1]
_holding.append(_holding)


@pytest.mark.parametrize(
    ("before", "again"),
    [
        (lambda: (1, "a", None, b"x", 2.5, UUID(int=5)), lambda: (1, "a", None, b"x", 2.5, UUID(int=5))),
        (lambda: ([1, {"a": (2, {3})}],), lambda: ([1, {"a": (2, {3})}],)),
        (lambda: (_opened(), "a"), lambda: (_opened(), "a")),
        (lambda: (_engine.connect(),), lambda: (_engine.connect(),)),
        (lambda: (orm.Session(_engine),), lambda: (orm.Session(_engine),)),
        (lambda: (_order,), lambda: (_order,)),
        (lambda: (_with_closure("a"), _with_default("a")), lambda: (_with_closure("a"), _with_default("a"))),
        (lambda: (partial(print, "a"),), lambda: (partial(print, "a"),)),
        (lambda: (_with_closure(_grown),), lambda: (_with_closure(_grown),)),
        (lambda: (_taken,), lambda: (_taken,)),
        (lambda: ([1, 2],), lambda: ([1, 2],)),
        (lambda: (_many,), lambda: (list(_many),)),
        (lambda: (_holding,), lambda: (_holding,)),
    ],
    ids=[
        "values",
        "containers",
        "connections beside a value",
        "connections of one engine",
        "sessions of one engine",
        "the same object",
        "closures",
        "partials",
        "a list in a closure that has grown",
        "a list that the step has changed",
        "a list that the step has changed, made anew",
        "a long list",
        "a list that holds itself",
    ],
)
def test_a_repeat_is_given_the_same(bench: FlowBench, before: Any, again: Any) -> None:
    done = []

    def work(*args: Any) -> int:
        done.append(args)
        if len(done) == 1:
            _grown.append(1)
            if args[0] == [1, 2]:
                args[0].pop()
            raise ZeroDivisionError
        return len(done)

    begin(bench, bench.running())
    with pytest.raises(ZeroDivisionError):
        current.step("work", work, *before())
    assert current.step("work", work, *again()) == 2
    assert names(bench) == ["work"]


def _changed(items: Any) -> Any:
    items.append(3)
    return items


_batch, _line = [1, 2], deque([1, 2])
_long = list(range(1000))


@pytest.mark.parametrize(
    ("before", "other"),
    [
        (lambda: (1,), lambda: ("1",)),
        (lambda: (1,), lambda: (1, 2)),
        (lambda: ([1, {"a": 2}],), lambda: ([1, {"a": 3}],)),
        (lambda: (_opened(), "a"), lambda: (_opened(), "b")),
        (lambda: (_opened(),), lambda: (_opened(),)),
        (lambda: (_engine.connect(),), lambda: (_elsewhere.connect(),)),
        (lambda: (orm.Session(_engine),), lambda: (orm.Session(_elsewhere),)),
        (lambda: (StringIO("a"), "x"), lambda: (StringIO("b"), "x")),
        (lambda: (iter("a"),), lambda: (iter("b"),)),
        (lambda: (n for n in "a"), lambda: (n for n in "b")),
        (lambda: (Order(),), lambda: (Order(),)),
        (lambda: (Order(1).ship,), lambda: (Order(2).ship,)),
        (lambda: (_with_closure("a"),), lambda: (_with_closure("b"),)),
        (lambda: (_with_default("a"),), lambda: (_with_default("b"),)),
        (lambda: (partial(print, "a"),), lambda: (partial(print, "b"),)),
        (lambda: (_batch,), lambda: (_changed(_batch),)),
        (lambda: (_line,), lambda: (_changed(_line),)),
        (lambda: (_long,), lambda: (_changed(_long),)),
    ],
    ids=[
        "kinds",
        "more",
        "containers",
        "beside",
        "connections alone",
        "connections of two engines",
        "sessions of two engines",
        "files",
        "iterators",
        "generators",
        "objects",
        "methods",
        "closures",
        "defaults",
        "partials",
        "a list that changed",
        "a deque that changed",
        "a long list that changed",
    ],
)
def test_another_thing_is_given_other_things(bench: FlowBench, before: Any, other: Any) -> None:
    def work(*args: Any) -> None:
        raise ZeroDivisionError

    begin(bench, bench.running())
    with pytest.raises(ZeroDivisionError):
        current.step("work", work, *before())
    with pytest.raises(BadStep, match="called now with other arguments"):
        current.step("work", work, *other())


def test_what_is_repeated_in_a_transaction_may_have_been_changed_behind_its_steps(bench: FlowBench, log: Log) -> None:
    begin(bench, bench.running())
    for fails in (True, False):
        batch: list[str] = []
        with suppress(ZeroDivisionError), current.transaction():
            for row in "abcd":
                batch.append(row)
                if len(batch) == 2:
                    current.step("insert", lambda rows: log.do("".join(rows)), batch)
                    batch.clear()
            for url in "xy":
                current.step("fetch", lambda: log.do(url))  # noqa: B023
            if fails:
                raise ZeroDivisionError
    assert log == ["ab", "cd", "x", "y"] * 2
    assert names(bench) == ["fetch", "fetch#2", "insert", "insert#2"]


def test_a_loop_over_what_shows_nothing_of_itself_is_repeated_in_a_transaction(bench: FlowBench, log: Log) -> None:
    begin(bench, bench.running())
    for fails in (True, False):
        with suppress(ZeroDivisionError), current.transaction():
            for _, item in current.each(enumerate("ab")):
                log.do(item)
            if fails:
                raise ZeroDivisionError
    assert log == ["a", "b", "a", "b"]


def test_an_argument_that_another_thread_is_changing_hides_no_error(bench: FlowBench) -> None:
    class Changing(dict[str, int]):
        def items(self) -> Any:
            raise RuntimeError("dictionary changed size during iteration")

    def work(stats: Any) -> None:
        raise OSError("down")

    begin(bench, bench.running())
    with pytest.raises(OSError, match="down"):
        current.step("work", work, Changing(a=1))
    assert names(bench) == []


def test_another_function_is_refused_under_the_name_of_a_call_that_failed(bench: FlowBench, log: Log) -> None:
    @step(name="pay", key="args.x")
    def first(x: str) -> Any:
        raise ZeroDivisionError

    @step(name="pay", key="args.x")
    def second(x: str) -> Any:
        return log.do(x)

    begin(bench, bench.running())
    with pytest.raises(ZeroDivisionError):
        first("a")
    with pytest.raises(BadStep, match=r"first.*second"):
        second("a")
    assert log == []


def test_what_many_places_share_is_looked_at_once(bench: FlowBench) -> None:
    shared: Any = ["x"]
    for _ in range(8):
        shared = [shared] * 10  # each place by itself would take longer than a test may

    def work(what: Any) -> None:
        raise ZeroDivisionError

    begin(bench, bench.running())
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            current.step("work", work, shared)


def test_a_lambda_in_a_loop_is_known_by_what_it_refers_to(bench: FlowBench, log: Log) -> None:
    begin(bench, bench.running())
    log.failing = {"bad"}
    for what in ("bad", "b"):
        with pytest.raises(ValueError if what == "bad" else BadStep):
            current.step("fetch", lambda: log.do(what))  # noqa: B023
    assert log == ["bad"]
