"""A worker with nothing to do takes over what was sent to its queues and did not begin."""

from __future__ import annotations

from typing import Any

import pytest
from celery.worker import state

from argus_celery.flow.claim import claim
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.steal import Room, steal
from argus_celery.flow.steer import pause, resume
from argus_celery.hooks.errands import Errands
from argus_celery.hooks.loop import Loop
from argus_celery.records import Delivery, HolderFacts
from argus_celery.store.engine import Store
from tests.flow.conftest import FlowBench
from tests.flow.faults import UnluckyStore
from tests.invariants import History
from tests.store.bench import counted

ME = HolderFacts("w9", "celery@w9", "host", 1, "boot", "ns", "start")


@pytest.fixture
def bench(bench: FlowBench) -> FlowBench:
    """Times at which a message that is lost comes back late."""
    late: dict[str, Any] = {"dispatch_ttl": 60, "dispatch_ttl_max": 600, "steal_after": 5}
    other = FlowBench(UnluckyStore(bench.store.url.render_as_string(hide_password=False), app_name="tests"), [], late)
    assert isinstance(other.store, Store)
    other.history = History(other.store)
    return other


def room(slots: int = 4, queues: tuple[str, ...] = ("celery",), knows: str = "") -> Room:
    return Room(slots, queues, lambda name: name.startswith(knows))


def test_what_has_lain_for_the_patience_is_sent_again_and_not_before(bench: FlowBench) -> None:
    task_id = bench.enqueue()
    bench.pass_time(4.9)
    assert steal(bench.rt, room()) == 0
    bench.pass_time(0.2)
    assert steal(bench.rt, room()) == 1
    assert dispatch(bench.rt).dispatched == (task_id,)
    assert (steal(bench.rt, room()), dispatch(bench.rt).dispatched) == (0, ())


def test_whichever_copy_begins_first_has_the_task_and_the_other_is_refused(bench: FlowBench) -> None:
    task_id = bench.enqueue()
    bench.pass_time(6)
    steal(bench.rt, room())
    dispatch(bench.rt)
    first, second = (Delivery(one.task_id, one.token) for one in bench.sent)
    assert first == second
    assert claim(bench.rt, "busy", [first])[0] is not None
    assert claim(bench.rt, "idle", [second])[0] is None
    assert bench.lease(task_id).holder == "busy"
    assert steal(bench.rt, room()) == 0, "it has begun"


def test_the_patience_doubles_with_each_time_that_it_was_sent(bench: FlowBench) -> None:
    task_id = bench.enqueue()
    for patience in (5, 10, 20, 40):
        bench.pass_time(patience - 0.2)
        assert steal(bench.rt, room()) == 0
        bench.pass_time(0.3)
        assert steal(bench.rt, room()) == 1
        assert dispatch(bench.rt).dispatched == (task_id,)


def test_a_worker_takes_what_it_has_room_for_of_its_queues_and_its_tasks(bench: FlowBench) -> None:
    old = [bench.enqueue() for _ in range(3)]
    bench.pass_time(1)
    bench.enqueue(name="other.task")
    bench.enqueue(queue="elsewhere")
    bench.pass_time(6)
    assert steal(bench.rt, room(2, knows="shop.")) == 2
    assert set(dispatch(bench.rt).dispatched) < set(old)
    assert steal(bench.rt, room(9, knows="shop.")) == 1
    dispatch(bench.rt)
    assert steal(bench.rt, room(9, knows="shop.")) == 0
    assert steal(bench.rt, room(9, ("elsewhere",))) == 1


def test_what_waits_in_the_store_is_not_stolen(bench: FlowBench) -> None:
    bench.enqueue(delay_ms=600_000)
    parked = bench.enqueue()
    pause(bench.rt, "default")
    bench.pass_time(30)
    assert steal(bench.rt, room()) == 0
    resume(bench.rt, "default")
    assert dispatch(bench.rt).dispatched == (parked,)


def test_an_idle_worker_steals_in_its_loop_when_it_has_had_room_for_a_while(
    bench: FlowBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("argus_celery.hooks.loop.IDLE_PAUSE", 0.0)
    task_id, rooms = bench.enqueue(), [None, room(), room(), room()]
    loop = Loop(bench.rt, ME, Errands(), lambda: None, room=lambda: rooms.pop(0) if rooms else None)
    bench.pass_time(6)
    assert loop.run_once().dispatched == (), "it has no room"
    assert loop.run_once().dispatched == (task_id,)


def test_a_worker_that_has_just_begun_something_does_not_steal(
    bench: FlowBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("argus_celery.hooks.loop.IDLE_PAUSE", 0.0)
    bench.enqueue()
    loop = Loop(bench.rt, ME, Errands(), lambda: None, room=room)
    bench.pass_time(6)
    for _ in range(3):
        monkeypatch.setattr(state, "all_total_count", [state.all_total_count[0] + 1])
        assert loop.run_once().dispatched == ()


def test_an_idle_worker_asks_nothing_more_where_nothing_is_held(bench: FlowBench) -> None:
    loop = Loop(bench.rt, ME, Errands(), lambda: None, room=room)
    loop.run_once()
    bench.enqueue(delay_ms=600_000)
    with counted(bench.store) as count:
        loop.run_once()
    assert count.statements == 1
