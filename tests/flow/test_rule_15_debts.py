"""Rule 15: an outcome owed to another backend is remembered by the completing transaction and paid once."""

from __future__ import annotations

from dataclasses import replace

from argus_celery.flow.complete import complete
from argus_celery.flow.deliver import done, pending
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.lapse import lapse
from argus_celery.flow.steer import cancel
from argus_celery.records import Outcome, TaskState
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
