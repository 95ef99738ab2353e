"""Rule 2: each task that has not ended has a lease row which is due, becomes due, or waits for something stated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from argus_celery.flow.complete import complete
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.enqueue import enqueue
from argus_celery.flow.release import release
from argus_celery.flow.restore import probe, sweep
from argus_celery.flow.retry import retry
from argus_celery.records import NOBODY, QUEUE, Outcome, TaskState
from tests.flow.conftest import FlowBench
from tests.flow.faults import LossyBroker
from tests.store.bench import new_task


def test_a_message_that_the_broker_lost_is_sent_again_after_the_dispatch_ttl(bench: FlowBench) -> None:
    task_id = bench.enqueue()
    bench.sent.clear()
    assert not dispatch(bench.rt).dispatched
    bench.pass_time(3.1)
    assert dispatch(bench.rt).dispatched == (task_id,)
    assert bench.claim() is not None


def test_the_copy_that_was_only_slow_is_still_good_and_the_second_is_refused(bench: FlowBench) -> None:
    task_id = bench.enqueue()
    bench.pass_time(3.1)
    dispatch(bench.rt)
    first, second = bench.sent
    assert first.token == second.token
    assert bench.claim("w1", task_id) is not None
    assert bench.claim("w2", task_id) is None


def test_a_producer_that_dies_between_commit_and_publish_loses_nothing(bench: FlowBench) -> None:
    class Killed(BaseException):
        pass

    def dies(_: object) -> list[str]:
        raise Killed

    task = new_task()
    with pytest.raises(Killed):
        enqueue(bench.rt, [task], dies)
    bench.pass_time(3.1)
    assert dispatch(bench.rt).dispatched == (task.id,)


def test_a_publish_that_surely_failed_gives_the_row_back_without_doubling(bench: FlowBench) -> None:
    broker = LossyBroker()
    broker.refuses = True
    rt = replace(bench.rt, publish=broker.publish)
    enqueued = enqueue(rt, [new_task()])[0]
    row = bench.lease(enqueued.task_id)
    assert (row.holder, row.dispatches) == (NOBODY, 0)
    broker.refuses = False
    bench.pass_time(1.1)
    assert dispatch(rt).dispatched == (enqueued.task_id,)
    assert bench.lease(enqueued.task_id).dispatches == 1


def test_a_publish_that_fails_again_and_again_never_reaches_for_a_row_that_was_granted(bench: FlowBench) -> None:
    claim = bench.running()
    broker = LossyBroker()
    broker.refuses = True
    late = replace(bench.rt, publish=broker.publish)
    bench.pass_time(7)
    dispatch(late)
    assert bench.lease(claim.task_id).holder == NOBODY
    bench.pass_time(1.1)
    dispatch(bench.rt)
    assert bench.claim("w2", claim.task_id) is not None


def test_the_queues_lease_doubles_up_to_its_bound(bench: FlowBench) -> None:
    task_id = bench.enqueue()
    for seconds in (3, 6, 12, 24, 30, 30):
        bench.pass_time(seconds - 0.5)
        assert not dispatch(bench.rt).dispatched
        bench.pass_time(0.6)
        assert dispatch(bench.rt).dispatched == (task_id,)


def test_a_dead_workers_task_goes_out_again_after_its_ttl_and_not_before(bench: FlowBench) -> None:
    claim = bench.running()
    bench.pass_time(5)
    assert not dispatch(bench.rt).dispatched
    bench.pass_time(1.1)
    report = dispatch(bench.rt)
    assert (report.dispatched, report.lapsed) == ((claim.task_id,), (claim.task_id,))
    assert bench.lease(claim.task_id).holder == QUEUE


def test_a_scheduled_task_stays_in_the_store_until_it_is_due(bench: FlowBench) -> None:
    task_id = bench.enqueue(delay_ms=20_000)
    assert not bench.sent
    bench.pass_time(19)
    assert not dispatch(bench.rt).dispatched
    bench.pass_time(1.1)
    assert dispatch(bench.rt).dispatched == (task_id,)


def test_a_retry_is_due_after_its_delay_and_one_that_is_due_now_goes_out_at_once(bench: FlowBench) -> None:
    claim = bench.running()
    retry(bench.rt, claim, new_task(id=claim.task_id, delay_ms=10_000))
    assert bench.claim("w2", claim.task_id) is None
    bench.pass_time(10.1)
    dispatch(bench.rt)
    again = bench.claim("w2", claim.task_id)
    assert again is not None
    sent = len(bench.sent)
    retry(bench.rt, again, new_task(id=claim.task_id))
    assert len(bench.sent) == sent + 1


def test_a_retry_into_a_queue_and_priority_that_were_never_used_is_found_by_the_scheduler(bench: FlowBench) -> None:
    claim = bench.running()
    retry(bench.rt, claim, new_task(id=claim.task_id, queue="elsewhere", priority=9, delay_ms=1000))
    bench.pass_time(1.1)
    assert dispatch(bench.rt).dispatched == (claim.task_id,)


def test_what_a_stopping_worker_hands_back_goes_out_at_once(bench: FlowBench) -> None:
    claims = [bench.running() for _ in range(3)]
    sent = len(bench.sent)
    released = release(bench.rt, "w1", [(one.task_id, one.token) for one in claims], "shutdown")
    assert sorted(released) == sorted(one.task_id for one in bench.sent[sent:])


def test_a_backlog_over_the_window_waits_in_the_store_and_is_sent_as_places_become_free(bench: FlowBench) -> None:
    rt = replace(bench.rt, settings=replace(bench.rt.settings, dispatch_window=2))
    ids = [one.task_id for one in enqueue(rt, [new_task() for _ in range(5)])]
    assert len(bench.sent) == 2
    assert not dispatch(rt).dispatched
    claim = bench.claim("w1", bench.sent[0].task_id)
    assert claim is not None
    complete(rt, claim, Outcome(TaskState.SUCCEEDED))
    assert len(dispatch(rt).dispatched) == 1
    assert {one.task_id for one in bench.sent} < set(ids)


def test_two_sweeps_dispatch_each_due_row_once_and_a_third_finds_nothing(bench: FlowBench, other: FlowBench) -> None:
    ids = {bench.running().task_id for _ in range(20)}
    for process in (bench, other):
        process.pass_time(7)
    sent = len(bench.sent)
    sweep(bench.rt)
    assert not sweep(other.rt).dispatched
    assert {one.task_id for one in bench.sent[sent:]} == ids
    assert len(bench.sent) - sent == len(ids)
    assert not probe(bench.rt)
