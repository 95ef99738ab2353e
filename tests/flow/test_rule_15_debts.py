"""Rule 15: an outcome owed to another backend is remembered by the completing transaction and paid once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from argus_celery.errors import LeaseLost
from argus_celery.flow.complete import complete
from argus_celery.flow.deliver import done, give_way, pending
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.lapse import lapse
from argus_celery.flow.retry import retry
from argus_celery.flow.steer import cancel, close, try_complete
from argus_celery.records import QUEUE, Outcome, TaskState
from tests.flow.conftest import FlowBench
from tests.store.bench import new_task


def test_an_outcome_that_is_owed_is_pending_until_it_is_paid_by_whoever_is_first(
    bench: FlowBench, other: FlowBench
) -> None:
    claim = bench.running()
    complete(bench.rt, claim, Outcome(TaskState.SUCCEEDED, b"r", undelivered=True))
    (debt,) = pending(bench.rt)
    assert (debt.task_id, debt.token, debt.state, debt.result) == (claim.task_id, claim.token, "succeeded", b"r")
    assert done(bench.rt, debt.task_id, debt.token, ())
    assert not done(other.rt, debt.task_id, debt.token, ())
    assert pending(bench.rt) == []


def test_nothing_is_owed_for_an_outcome_that_was_delivered(bench: FlowBench) -> None:
    claim = bench.running()
    complete(bench.rt, claim, Outcome(TaskState.SUCCEEDED))
    assert pending(bench.rt) == []


def test_a_result_backend_hears_of_a_retry_after_its_commit_and_before_the_next_run_can_say_anything(
    bench: FlowBench,
) -> None:
    claim, told = bench.running(), list[tuple[int, str, int]]()

    def tell() -> None:
        told.append((bench.task(claim.task_id).retries, bench.lease(claim.task_id).holder, len(bench.sent)))

    sent = len(bench.sent)
    retry(bench.rt, claim, new_task(id=claim.task_id), None, tell)
    assert told == [(1, QUEUE, sent)]
    assert len(bench.sent) == sent + 1


def test_a_result_backend_hears_nothing_of_a_retry_by_a_run_that_lost_its_lease(bench: FlowBench) -> None:
    claim, told = bench.running(), list[None]()
    bench.pass_time(7)
    dispatch(bench.rt)
    with pytest.raises(LeaseLost):
        retry(bench.rt, claim, new_task(id=claim.task_id), None, lambda: told.append(None))
    assert told == []


def test_the_errbacks_of_a_dead_letter_are_enqueued_once_with_the_payment(bench: FlowBench, other: FlowBench) -> None:
    claim = bench.running(max_losses=1)
    lapse(bench.rt, "w1", claim.task_id, claim.token, "signal 9")
    (debt,) = pending(bench.rt)
    assert (debt.state, debt.message.headers["id"]) == (TaskState.DEAD, claim.task_id)
    errbacks = [new_task(name="tell", project_id=debt.project_id, inside=True) for _ in range(2)]
    assert done(bench.rt, debt.task_id, debt.token, [errbacks[0]])
    assert not done(other.rt, debt.task_id, debt.token, [errbacks[1]])
    assert bench.task(errbacks[0].id) is not None
    assert bench.task(errbacks[1].id) is None


def test_a_payment_under_another_token_pays_nothing(bench: FlowBench) -> None:
    claim = bench.running()
    complete(bench.rt, claim, Outcome(TaskState.SUCCEEDED, undelivered=True))
    assert not done(bench.rt, claim.task_id, claim.token - 1, ())
    assert len(pending(bench.rt)) == 1


def test_tasks_that_end_without_a_run_are_owed_to_a_foreign_backend_only(bench: FlowBench) -> None:
    for foreign in (False, True):
        rt = replace(bench.rt, foreign_results=foreign)
        bench.enqueue(project=f"foreign {foreign}")
        expired = bench.enqueue(delay_ms=2_000, expires_in_ms=1_000)
        cancel(rt, f"foreign {foreign}")
        bench.pass_time(3)
        assert expired in dispatch(rt).ended
        assert len(pending(rt)) == (2 if foreign else 0)


def test_debts_that_cannot_be_paid_give_way_to_those_that_were_tried_less_often(bench: FlowBench) -> None:
    for _ in range(3):
        complete(bench.rt, bench.running(), Outcome(TaskState.SUCCEEDED, undelivered=True))
    failing = pending(bench.rt, 2)
    for debt in failing:
        give_way(bench.rt, debt)
    first, second = pending(bench.rt, 2)
    assert first not in failing
    assert second in failing
    assert done(bench.rt, second.task_id, second.token)


def test_a_result_that_cannot_be_told_does_not_keep_its_project_from_its_end(bench: FlowBench) -> None:
    complete(bench.rt, bench.running(), Outcome(TaskState.SUCCEEDED, undelivered=True))
    dead = bench.running(max_losses=1)
    lapse(bench.rt, "w1", dead.task_id, dead.token, "signal 9")
    for debt in pending(bench.rt) * 2:
        give_way(bench.rt, debt)
    close(bench.rt, "default")
    assert not try_complete(bench.rt, "default"), "errbacks may still come"
    assert done(bench.rt, dead.task_id, dead.token)
    assert try_complete(bench.rt, "default")


def test_a_run_that_retries_after_the_cancel_is_owed_to_a_foreign_backend(bench: FlowBench) -> None:
    claim = bench.running()
    cancel(bench.rt, "default")
    retry(replace(bench.rt, foreign_results=True), claim, new_task(id=claim.task_id))
    (debt,) = pending(bench.rt)
    assert (debt.task_id, debt.state) == (claim.task_id, TaskState.CANCELLED)
