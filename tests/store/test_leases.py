"""The statements of the lease protocol, on every database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from argus_celery.flow.complete import complete
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.renew import renew
from argus_celery.flow.retry import retry
from argus_celery.flow.steer import pause
from argus_celery.records import NOBODY, QUEUE, Delivery, Outcome, TaskState
from argus_celery.store import backlog, leases
from argus_celery.store.backlog import Level
from argus_celery.store.engine import Store
from argus_celery.store.schema import leases as table
from tests.store.bench import Bench, new_task


def grant(bench: Bench, *deliveries: Delivery, mark: str = "m1", holder: str = "w1") -> list[leases.Granted]:
    return bench.store.transaction(lambda c: leases.grant(bench.store, c, holder, mark, deliveries))


def test_a_delivery_is_granted_once_with_the_next_token(bench: Bench) -> None:
    task = bench.enqueue()
    assert [(one.task_id, one.token) for one in grant(bench, Delivery(task, 1))] == [(task, 2)]
    assert grant(bench, Delivery(task, 1), mark="m2") == []
    assert grant(bench, Delivery(task, 2), mark="m3") == []
    assert bench.lease(task).holder == "w1"


def test_many_deliveries_are_granted_in_one_statement(bench: Bench) -> None:
    ids = [bench.enqueue() for _ in range(250)]
    granted = grant(bench, *[Delivery(task, 1) for task in ids], Delivery("unknown", 1), Delivery(ids[0], 7))
    assert sorted(one.task_id for one in granted) == sorted(ids)


def test_a_grant_whose_answer_was_lost_is_found_by_its_mark(bench: Bench) -> None:
    task = bench.enqueue()
    grant(bench, Delivery(task, 1), mark="m1")
    read = bench.store.statement
    assert [one.token for one in read(lambda c: leases.granted_by(c, "w1", "m1", [task]))] == [2]
    assert read(lambda c: leases.granted_by(c, "w1", "m2", [task])) == []
    assert read(lambda c: leases.granted_by(c, "w2", "m1", [task])) == []


def test_a_task_that_has_expired_is_not_granted(bench: Bench) -> None:
    task = bench.enqueue(expires_in_ms=1000)
    bench.pass_time(2)
    assert grant(bench, Delivery(task, 1)) == []


def test_a_task_of_a_paused_project_is_not_granted_even_where_the_pause_missed_its_row(bench: Bench) -> None:
    task = bench.enqueue()
    pause(bench.rt, "default")
    missed = sa.update(table).values(paused=0, holder=QUEUE)
    bench.store.statement(lambda c: c.execute(missed))
    assert grant(bench, Delivery(task, 1)) == []


def test_the_token_rises_at_a_dispatch_unless_the_queue_held_the_row(bench: Bench) -> None:
    task = bench.enqueue()
    bench.pass_time(61)
    dispatch(bench.rt)
    assert bench.lease(task).token == 1
    assert bench.claim(task_id=task) is not None
    bench.pass_time(31)
    dispatch(bench.rt)
    assert (bench.lease(task).token, bench.lease(task).holder) == (3, QUEUE)


def test_the_queues_lease_doubles_up_to_its_bound(bench: Bench) -> None:
    task = bench.enqueue()
    for seconds in (120, 240, 480, 600, 600, 600):
        bench.store.clock_shift += bench.lease(task).eligible_at - now(bench) + 1
        before = now(bench)
        dispatch(bench.rt)
        after = now(bench)
        assert before <= bench.lease(task).eligible_at - seconds * 1000 <= after


def test_a_claim_sets_the_doubling_back(bench: Bench) -> None:
    task = bench.enqueue()
    for _ in range(3):
        bench.pass_time(601)
        dispatch(bench.rt)
    bench.claim(task_id=task)
    assert bench.lease(task).dispatches == 0


def test_due_rows_come_by_priority_and_then_by_age(bench: Bench) -> None:
    late = bench.enqueue(delay_ms=2000)
    soon = bench.enqueue(delay_ms=1000)
    urgent = bench.enqueue(delay_ms=3000, priority=5)
    bench.pass_time(10)
    assert list(dispatch(bench.rt).dispatched) == [urgent, soon, late]


def test_the_heads_name_each_queue_and_priority_that_waits(bench: Bench) -> None:
    bench.enqueue(delay_ms=5000)
    bench.enqueue(delay_ms=4000, priority=3)
    bench.enqueue(delay_ms=9000, queue="mail")
    heads = bench.store.statement(lambda c: backlog.heads(bench.store, c))
    assert {(level.queue, level.priority) for level in heads.levels} == {("celery", 0), ("celery", 3), ("mail", 0)}
    assert not heads.any_due
    assert 3000 < (heads.next_due_ms or 0) <= 4000


def test_a_renewal_moves_on_what_is_held_and_nothing_else(bench: Bench) -> None:
    mine, other = bench.running("w1"), bench.running("w2")
    bench.pass_time(20)
    answer = renew(bench.rt, "w1", [(mine.task_id, mine.token), (other.task_id, other.token), ("gone", 2)])
    assert answer.held == {(mine.task_id, mine.token)}
    assert answer.lost == {(other.task_id, other.token), ("gone", 2)}
    assert bench.lease(mine.task_id).eligible_at - bench.lease(other.task_id).eligible_at >= 19_000


def test_a_claim_that_is_yet_to_be_made_is_not_lost(bench: Bench) -> None:
    task = bench.enqueue()
    assert renew(bench.rt, "w1", [(task, 2)]).lost == frozenset()


def locked_elsewhere(store: Store, task_id: str, work: Callable[[], Any]) -> Any:
    """Do ``work`` while another transaction has the task's lease row locked."""
    if store.dialect_name == "sqlite":
        pytest.skip("SQLite has one writer: no row is locked while another writes")
    with store.engine.begin() as connection:
        connection.execute(sa.select(table).where(table.c.task_id == task_id).with_for_update())
        return work()


def test_a_renewal_passes_over_a_row_that_another_has_locked_and_does_not_call_it_lost(bench: Bench) -> None:
    locked, free = bench.running(), bench.running()
    claims = [(locked.task_id, locked.token), (free.task_id, free.token)]
    answer = locked_elsewhere(bench.store, locked.task_id, lambda: renew(bench.rt, "w1", claims))
    assert (answer.held, answer.lost) == ({(free.task_id, free.token)}, frozenset())


def test_dispatch_passes_over_rows_that_another_has_locked(bench: Bench) -> None:
    locked, free = bench.enqueue(delay_ms=1000), bench.enqueue(delay_ms=1000)
    bench.pass_time(2)
    report = locked_elsewhere(bench.store, locked, lambda: dispatch(bench.rt))
    assert report.dispatched == (free,)


def test_rows_given_back_wait_in_the_store_with_their_back_off_not_doubled(bench: Bench) -> None:
    task = bench.enqueue()
    bench.store.transaction(lambda c: leases.give_back(bench.store, c, [(task, 1)], 1000))
    lease = bench.lease(task)
    assert (lease.holder, lease.dispatches, lease.token) == (NOBODY, 0, 1)


def test_giving_back_does_not_touch_a_row_that_was_claimed_meanwhile(bench: Bench) -> None:
    claim = bench.running()
    bench.store.transaction(lambda c: leases.give_back(bench.store, c, [(claim.task_id, 1)], 1000))
    assert bench.lease(claim.task_id).holder == "w1"


def test_a_level_gives_no_more_rows_than_asked_for(bench: Bench) -> None:
    for _ in range(5):
        bench.enqueue(delay_ms=10)
    bench.pass_time(1)
    rows = bench.store.transaction(lambda c: leases.due_waiting(bench.store, c, Level("celery", 0, 0), 3))
    assert len(rows) == 3


def now(bench: Bench) -> int:
    read = bench.store.statement(lambda c: c.execute(sa.select(bench.store.now)).scalar())
    assert isinstance(read, int)
    return read


def test_a_run_that_has_ended_by_itself_a_moment_ago_is_not_lost(bench: Bench) -> None:
    done, retried, taken = bench.running(), bench.running(), bench.running()
    complete(bench.rt, done, Outcome(TaskState.SUCCEEDED))
    retry(bench.rt, retried, new_task(id=retried.task_id, delay_ms=60_000))
    bench.pass_time(31)
    dispatch(bench.rt)
    claims = [(one.task_id, one.token) for one in (done, retried, taken)]
    assert renew(bench.rt, "w1", claims).lost == {(taken.task_id, taken.token)}


def test_a_retry_may_expire_relative_to_the_databases_clock(bench: Bench) -> None:
    claim = bench.running()
    retry(bench.rt, claim, new_task(id=claim.task_id, delay_ms=5_000, expires_in_ms=1_000))
    bench.pass_time(6)
    assert dispatch(bench.rt).ended == (claim.task_id,)
    assert bench.task(claim.task_id).outcome == TaskState.EXPIRED
