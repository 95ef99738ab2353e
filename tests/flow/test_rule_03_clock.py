"""Rule 3: only the database's clock decides; a holder trusts its grant by monotonic time from when it was asked for."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
import sqlalchemy as sa

from argus_celery.flow.claim import claim
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.renew import renew
from argus_celery.records import Delivery, TaskState
from argus_celery.store.schema import leases, projects
from tests.flow.conftest import FlowBench


@pytest.mark.parametrize("hours", [25, -25])
def test_a_process_whose_own_clock_is_a_day_off_writes_the_same_times(
    bench: FlowBench, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + hours * 3600)
    scheduled = bench.enqueue(delay_ms=20_000)
    running = bench.running()
    renew(bench.rt, "w1", [(running.task_id, running.token)])
    assert not dispatch(bench.rt).dispatched
    now = bench.store.statement(lambda c: c.execute(sa.select(bench.store.now)).scalar_one())
    assert 15_000 < bench.lease(scheduled).eligible_at - now <= 20_000
    assert 1_000 < bench.lease(running.task_id).eligible_at - now <= 6_000
    assert abs(bench.task(scheduled).created_at - now) < 5_000


def test_times_are_those_of_the_statement_and_not_of_the_transactions_start(bench: FlowBench) -> None:
    task_id = bench.enqueue()
    with bench.store.open() as connection:
        first = connection.execute(sa.select(bench.store.now)).scalar_one()
        deadline = time.monotonic() + 5
        while (later := connection.execute(sa.select(bench.store.now)).scalar_one()) == first:
            assert time.monotonic() < deadline, "the clock stands still inside a transaction"
    assert later > first
    assert bench.lease(task_id).eligible_at > first


def test_a_task_that_expired_in_the_broker_is_refused_and_then_ends_expired(bench: FlowBench) -> None:
    task_id = bench.enqueue(expires_in_ms=2_000)
    bench.pass_time(2.1)
    assert bench.claim("w1", task_id) is None
    bench.pass_time(3)
    assert dispatch(bench.rt).ended == (task_id,)
    assert bench.task(task_id).outcome == TaskState.EXPIRED


def test_a_task_in_the_broker_ends_when_it_expires_and_not_when_its_dispatch_lapses(bench: FlowBench) -> None:
    first, again = bench.enqueue(expires_in_ms=1_000), bench.enqueue(delay_ms=500, expires_in_ms=1_000)
    bench.pass_time(0.6)
    assert dispatch(bench.rt).dispatched == (again,)
    bench.pass_time(0.5)
    assert set(dispatch(bench.rt).ended) == {first, again}


def test_a_task_that_expired_in_the_backlog_is_not_sent(bench: FlowBench) -> None:
    task_id = bench.enqueue(delay_ms=5_000, expires_in_ms=2_000)
    bench.pass_time(5.1)
    assert dispatch(bench.rt).ended == (task_id,)
    assert not bench.sent


def test_a_run_under_way_does_not_expire(bench: FlowBench) -> None:
    running = bench.running(expires_in_ms=2_000)
    bench.pass_time(4)
    assert renew(bench.rt, "w1", [(running.task_id, running.token)]).held
    assert not dispatch(bench.rt).ended


def test_a_grant_is_trusted_from_when_it_was_asked_for_and_not_from_when_the_answer_came(bench: FlowBench) -> None:
    task_id = bench.enqueue()
    asked = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        with bench.store.open() as connection:
            connection.execute(sa.update(leases).where(leases.c.task_id == task_id).values(waits=0))
            asking = pool.submit(claim, bench.rt, "w1", [Delivery(task_id, 1)])
            assert not wait([asking], timeout=0.6).done
        (granted,) = asking.result(timeout=30)
    assert granted is not None
    assert granted.deadline - asked < 6 * 0.9 + 0.5
    assert granted.deadline > asked


def test_the_trusted_window_ends_before_the_lease_does(bench: FlowBench) -> None:
    before = time.monotonic()
    granted = bench.running()
    assert granted.deadline < before + 6


def test_a_projects_pause_is_noted_by_the_databases_clock(bench: FlowBench) -> None:
    from argus_celery.flow.steer import pause

    bench.enqueue(project="alpha")
    bench.pass_time(1000)
    pause(bench.rt, "alpha")
    row = bench.store.statement(lambda c: c.execute(projects.select()).one())
    assert row.paused_at - row.created_at >= 1_000_000
