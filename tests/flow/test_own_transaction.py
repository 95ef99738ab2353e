"""What the store is asked for inside ``current.transaction()`` is part of it, or is refused at once: on a connection of
its own it would wait for the very transaction that waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import sqlalchemy as sa

from argus_celery import signals
from argus_celery.context import current
from argus_celery.errors import BadTransaction
from argus_celery.flow import steer
from argus_celery.flow.enqueue import enqueue
from argus_celery.flow.inbox import Inbox
from argus_celery.flow.link import add_after
from argus_celery.flow.renew import renew
from argus_celery.flow.revoke import revoke
from argus_celery.flow.say import say
from argus_celery.flow.suspend import Wait, suspend
from argus_celery.flow.tell import tell
from argus_celery.flow.watch import Watch
from argus_celery.run import Run
from argus_celery.store import events, results
from argus_celery.store.outer.base import outside
from argus_celery.store.schema import tasks
from tests.flow.conftest import FlowBench
from tests.flow.running import Log, begin, names
from tests.store.bench import new_task


@pytest.fixture
def run(bench: FlowBench) -> Run:
    return begin(bench, bench.running())


def put(bench: FlowBench, run: Run, **more: Any) -> str:
    return enqueue(bench.rt, [new_task(inside=True, project_id=run.claim.project_id, **more)])[0].task_id


def recorded(bench: FlowBench) -> int:
    """As another process sees it."""
    with outside():
        return bench.store.read(lambda c: int(c.execute(sa.select(sa.func.count()).select_from(tasks)).scalar_one()))


def told(bench: FlowBench, run: Run, event: str) -> bool:
    with outside():
        return bench.store.read(lambda c: events.read(c, run.claim.project_id, event)) is not None


def test_what_is_enqueued_and_sent_in_it_is_there_and_leaves_with_the_commit(bench: FlowBench) -> None:
    waiting = bench.running()
    suspend(bench.rt, waiting, Wait("wait go", "go"))
    run = begin(bench, bench.running())
    before, heard = len(bench.sent), []

    def heard_of(sender: Any, **facts: Any) -> None:
        heard.append(facts["name"])

    signals.project_told.connect(heard_of)
    try:
        with current.transaction():
            child = put(bench, run)
            assert tell(bench.rt, "default", "go", b"now")
            assert not tell(bench.rt, "default", "go", b"again")
            assert (recorded(bench), told(bench, run, "go"), len(bench.sent), heard) == (2, False, before, [])
    finally:
        signals.project_told.disconnect(heard_of)
    assert (recorded(bench), told(bench, run, "go"), heard) == (3, True, ["go"])
    assert {one.task_id for one in bench.sent[before:]} == {child, waiting.task_id}
    assert bench.claim("w2", child) is not None


def test_nothing_is_enqueued_or_sent_by_one_that_is_rolled_back(bench: FlowBench, run: Run) -> None:
    before = len(bench.sent)
    with suppress(ZeroDivisionError), current.transaction():
        put(bench, run, key="k")
        put(bench, run, project="made in it")
        tell(bench.rt, "default", "go", b"now")
        say(bench.rt, run.claim, b"half")
        raise ZeroDivisionError
    assert (recorded(bench), told(bench, run, "go"), len(bench.sent)) == (1, False, before)
    again = put(bench, run, key="k")
    assert bench.sent[-1].task_id == again


def test_more_who_wait_than_one_transaction_tells_are_woken_behind_the_commit(
    bench: FlowBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("argus_celery.flow.tell.AT_ONCE", 2)
    waiting = [bench.running() for _ in range(5)]
    for claim in waiting:
        suspend(bench.rt, claim, Wait("wait go", "go"))
    begin(bench, bench.running())
    bench.sent.clear()
    with current.transaction():
        tell(bench.rt, "default", "go", b"now")
        assert bench.sent == []
    assert {one.task_id for one in bench.sent} == {claim.task_id for claim in waiting}


def test_one_inside_another_is_a_savepoint(bench: FlowBench, run: Run, log: Log) -> None:
    before = len(bench.sent)
    with current.transaction():
        current.step("outer", log.do, "outer")
        with current.transaction():
            kept = put(bench, run)
            current.step("inner", log.do, "inner")
        with suppress(ZeroDivisionError), current.transaction():
            put(bench, run)
            current.step("undone", log.do, "undone")
            raise ZeroDivisionError
        current.step("undone", log.do, "undone")
        assert log.count("undone") == 2
    assert names(bench) == ["inner", "outer", "undone"]
    assert [one.task_id for one in bench.sent[before:]] == [kept]


def test_a_rollback_of_the_outer_one_takes_the_inner_one_along(bench: FlowBench, run: Run, log: Log) -> None:
    before = len(bench.sent)
    with suppress(ZeroDivisionError), current.transaction():
        with current.transaction():
            put(bench, run)
            current.step("inner", log.do, "inner")
        raise ZeroDivisionError
    assert (names(bench), recorded(bench), len(bench.sent)) == ([], 1, before)
    current.step("inner", log.do, "inner")
    assert log.count("inner") == 2


def test_what_a_run_says_and_asks_of_itself_in_it_waits_for_nobody(bench: FlowBench, run: Run) -> None:
    run.shown.timeout = 4.0
    with current.transaction():
        current.check()
        current.progress()
        say(bench.rt, run.claim, b"half")
        assert (current.attempt, current.key) == (1, None)
        assert not renew(bench.rt, run.claim.holder, [(run.claim.task_id, run.claim.token)]).lost
    row = results.read(bench.store, [run.claim.task_id])[run.claim.task_id]
    assert row.said == b"half"


def test_a_project_that_is_made_in_it_takes_its_tasks(bench: FlowBench, run: Run) -> None:
    with current.transaction():
        steer.open_project(bench.rt, "new")
        task = enqueue(bench.rt, [new_task(project="new")])[0]
    assert bench.sent[-1].task_id == task.task_id


def test_what_would_wait_for_it_is_refused_at_once(bench: FlowBench, run: Run) -> None:
    other = bench.enqueue(project="other")
    calls: list[Callable[[], object]] = [
        lambda: steer.pause(bench.rt, "default"),
        lambda: steer.close(bench.rt, "other"),
        lambda: steer.cancel(bench.rt, "other"),
        lambda: add_after(bench.rt, "other", other, [other]),
        lambda: revoke(bench.rt, [other]),
        lambda: Watch(bench.store).wait(Inbox(), 20),
    ]
    for call in calls:
        with pytest.raises(BadTransaction, match="inside a transaction"), current.transaction():
            call()
    steer.pause(bench.rt, "other")


def test_a_second_one_in_another_coroutine_of_the_loop_is_refused(bench: FlowBench, run: Run) -> None:
    async def awaits_inside() -> None:
        with current.transaction():
            await asyncio.sleep(0)

    async def both() -> list[Any]:
        return list(await asyncio.gather(awaits_inside(), awaits_inside(), return_exceptions=True))

    first, second = asyncio.run(both())
    assert first is None
    with pytest.raises(BadTransaction, match="do not await inside a transaction"):
        raise second
    with current.transaction():
        pass


def test_what_was_begun_in_it_and_goes_on_behind_it_writes_by_itself(bench: FlowBench, run: Run) -> None:
    async def later(gate: asyncio.Event) -> str:
        await gate.wait()
        return put(bench, run)

    async def body() -> str:
        gate = asyncio.Event()
        with current.transaction():
            task = asyncio.create_task(later(gate))
        gate.set()
        return await task

    child = asyncio.run(body())
    assert bench.sent[-1].task_id == child
