"""Rule 4: a lapse is not a failed attempt. Losses, retries and deliveries are three counters."""

from __future__ import annotations

from typing import Any

import pytest

from argus_celery.flow.complete import complete
from argus_celery.flow.deliver import pending
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.lapse import lapse
from argus_celery.flow.release import release
from argus_celery.flow.retry import retry
from argus_celery.records import AttemptOutcome, Claim, Outcome, TaskState
from argus_celery.store import reports
from tests.flow.conftest import FlowBench
from tests.store.bench import new_task


def counters(bench: FlowBench, task_id: str) -> tuple[int, int, int]:
    row: Any = bench.task(task_id)
    return row.attempts, row.losses, row.retries


def again(bench: FlowBench, task_id: str) -> Claim:
    claim = bench.claim("w1", task_id)
    assert claim is not None
    return claim


def test_a_lapse_is_charged_as_a_loss_and_not_as_a_retry(bench: FlowBench) -> None:
    claim = bench.running()
    bench.pass_time(7)
    dispatch(bench.rt)
    assert counters(bench, claim.task_id) == (1, 1, 0)
    assert [one.outcome for one in reports.attempt_rows(bench.store, claim.task_id)] == [AttemptOutcome.LOST]


def test_a_retry_is_no_loss(bench: FlowBench) -> None:
    claim = bench.running()
    for _ in range(7):
        retry(bench.rt, claim, new_task(id=claim.task_id))
        claim = again(bench, claim.task_id)
    assert counters(bench, claim.task_id) == (7, 0, 7)


def test_a_task_that_was_replaced_was_not_retried(bench: FlowBench) -> None:
    claim = bench.running()
    retry(bench.rt, claim, new_task(id=claim.task_id), "replaced", retried=False)
    assert counters(bench, claim.task_id) == (1, 0, 0)


def test_a_hand_over_at_shutdown_is_neither(bench: FlowBench) -> None:
    claim = bench.running()
    for _ in range(7):
        release(bench.rt, "w1", [(claim.task_id, claim.token)], "shutdown")
        claim = again(bench, claim.task_id)
    assert counters(bench, claim.task_id) == (7, 0, 0)


def test_deliveries_that_were_refused_or_lost_count_as_nothing(bench: FlowBench) -> None:
    task_id = bench.enqueue()
    for _ in range(8):
        bench.pass_time(31)
        dispatch(bench.rt)
    claim = bench.claim("w1", task_id)
    assert bench.claim("w2", task_id) is None
    assert claim is not None
    assert counters(bench, task_id) == (0, 0, 0)


def test_a_task_that_lost_its_worker_too_often_is_dead_with_the_evidence(bench: FlowBench) -> None:
    claim = bench.running(max_losses=3)
    ends = [lapse(bench.rt, "w1", claim.task_id, claim.token, "signal 9 (pid 4711)")]
    while ends[-1] is TaskState.QUEUED:
        claim = again(bench, claim.task_id)
        ends.append(lapse(bench.rt, "w1", claim.task_id, claim.token, "signal 9 (pid 4711)"))
    assert ends == [TaskState.QUEUED, TaskState.QUEUED, TaskState.DEAD]
    row = bench.task(claim.task_id)
    assert (row.outcome, row.fence, row.losses) == (TaskState.DEAD, claim.token, 3)
    assert "3 times" in row.error
    assert "signal 9 (pid 4711)" in row.error
    runs = reports.attempt_rows(bench.store, claim.task_id)
    assert [(one.holder, one.outcome, one.detail) for one in runs] == [("w1", "lost", "signal 9 (pid 4711)")] * 3


@pytest.mark.parametrize(("own", "named"), [(1, "the task's own max_losses is 1"), (None, "argus_max_losses")])
def test_a_dead_letter_names_the_limit_that_it_reached(bench: FlowBench, own: int | None, named: str) -> None:
    claim = bench.running(max_losses=own)
    while lapse(bench.rt, "w1", claim.task_id, claim.token, "signal 9") is TaskState.QUEUED:
        claim = again(bench, claim.task_id)
    assert named in bench.task(claim.task_id).error


def test_retries_do_not_bring_a_task_nearer_to_its_death(bench: FlowBench) -> None:
    claim = bench.running(max_losses=2)
    assert lapse(bench.rt, "w1", claim.task_id, claim.token, "signal 9") is TaskState.QUEUED
    for _ in range(3):
        claim = again(bench, claim.task_id)
        retry(bench.rt, claim, new_task(id=claim.task_id))
    claim = again(bench, claim.task_id)
    complete(bench.rt, claim, Outcome(TaskState.SUCCEEDED))
    assert counters(bench, claim.task_id) == (5, 1, 3)


def test_dispatch_buries_the_worn_out_as_a_lost_child_does_and_its_errbacks_are_owed_once(bench: FlowBench) -> None:
    claim = bench.running(max_losses=1)
    bench.pass_time(7)
    report = dispatch(bench.rt)
    assert (report.dead, report.dispatched) == ((claim.task_id,), ())
    assert [(one.task_id, one.state) for one in pending(bench.rt)] == [(claim.task_id, TaskState.DEAD)]
