"""Rule 9: the store going away kills nobody. Claims and outcomes wait, producers are told, nothing is stolen after."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest
from kombu.exceptions import OperationalError

from argus_celery.errors import StoreUnavailable
from argus_celery.flow.claim import claim
from argus_celery.flow.complete import complete
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.enqueue import enqueue
from argus_celery.flow.release import release
from argus_celery.flow.renew import renew
from argus_celery.flow.retry import retry
from argus_celery.records import Delivery, Outcome, TaskState
from tests.flow.conftest import FlowBench
from tests.services.server import wait_until
from tests.store.bench import new_task

T = TypeVar("T")


def while_away(bench: FlowBench, call: Callable[[], T]) -> T:
    """Begin the call while the store is away, and bring it back when the call has met that twice."""
    bench.store.away = True
    met = bench.store.turned_away
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(call)
        came_again = wait_until(lambda: bench.store.turned_away >= met + 2 or running.done(), 20)
        waited = not running.done()
        bench.store.away = False
        answer = running.result(timeout=30)
    assert came_again
    assert waited
    return answer


def test_a_claim_waits_until_the_store_is_back(bench: FlowBench) -> None:
    task_id = bench.enqueue()
    (one,) = while_away(bench, lambda: claim(bench.rt, "w1", [Delivery(task_id, 1)]))
    assert one is not None
    assert bench.lease(task_id).holder == "w1"


def test_an_outcome_waits_until_the_store_is_back(bench: FlowBench) -> None:
    one = bench.running()
    while_away(bench, lambda: complete(bench.rt, one, Outcome(TaskState.SUCCEEDED, b"r")))
    assert bench.task(one.task_id).result == b"r"


def test_a_retry_waits_until_the_store_is_back(bench: FlowBench) -> None:
    one = bench.running()
    while_away(bench, lambda: retry(bench.rt, one, new_task(id=one.task_id)))
    assert bench.claim("w2", one.task_id) is not None


def test_a_producer_is_told_at_once_and_nothing_is_published(bench: FlowBench) -> None:
    bench.enqueue()
    bench.sent.clear()
    bench.store.away = True
    with pytest.raises(StoreUnavailable) as raised:
        enqueue(bench.rt, [new_task()])
    assert isinstance(raised.value, OperationalError)
    assert bench.sent == []
    bench.store.away = False


def test_a_worker_that_stops_does_not_wait_for_a_store_that_is_away(bench: FlowBench) -> None:
    one = bench.running()
    bench.store.away = True
    with pytest.raises(StoreUnavailable):
        release(bench.rt, "w1", [(one.task_id, one.token)], "shutdown")
    bench.store.away = False


def test_after_an_outage_workers_renew_before_their_leases_are_looked_at(bench: FlowBench) -> None:
    one, queued = bench.running(), bench.enqueue()
    bench.store.away = True
    with pytest.raises(StoreUnavailable):
        dispatch(bench.rt)
    bench.pass_time(7)
    bench.store.away = False
    report = dispatch(bench.rt)
    assert (report.lapsed, report.dispatched) == ((), (queued,))
    assert renew(bench.rt, "w1", [(one.task_id, one.token)]).held == {(one.task_id, one.token)}


def test_a_renewal_period_later_what_was_not_renewed_is_dispatched_and_not_charged(bench: FlowBench) -> None:
    one = bench.running()
    bench.store.away = True
    with pytest.raises(StoreUnavailable):
        dispatch(bench.rt)
    bench.pass_time(7)
    bench.store.away = False
    assert dispatch(bench.rt).lapsed == ()
    assert wait_until(lambda: dispatch(bench.rt).lapsed == (one.task_id,), 6)
    assert (bench.task(one.task_id).attempts, bench.task(one.task_id).losses) == (1, 0)


def test_a_process_that_saw_no_outage_charges_a_lapse(bench: FlowBench) -> None:
    one = bench.running()
    bench.pass_time(7)
    dispatch(bench.rt)
    assert bench.task(one.task_id).losses == 1
