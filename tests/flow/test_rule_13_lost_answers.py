"""Rule 13: a commit whose answer is lost is never taken for a refusal."""

from __future__ import annotations

import pytest

from argus_celery.errors import LeaseLost
from argus_celery.flow.claim import claim
from argus_celery.flow.complete import complete
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.enqueue import enqueue
from argus_celery.flow.retry import retry
from argus_celery.records import Delivery, Outcome, TaskState
from tests.flow.conftest import FlowBench
from tests.store.bench import new_task


def test_a_grant_whose_answer_was_lost_is_found_again(bench: FlowBench) -> None:
    task_id = bench.enqueue()
    bench.store.lose_answers = 1
    (one,) = claim(bench.rt, "w1", [Delivery(task_id, 1)])
    assert one is not None
    assert (bench.lease(task_id).token, bench.lease(task_id).holder) == (one.token, "w1")


def test_a_grant_to_another_is_not_taken_for_mine_when_an_answer_was_lost(bench: FlowBench, other: FlowBench) -> None:
    task_id = bench.enqueue()
    assert claim(other.rt, "w1", [Delivery(task_id, 1)]) != [None]
    bench.store.lose_answers = 1
    assert claim(bench.rt, "w1", [Delivery(task_id, 1)]) == [None]


def test_an_outcome_whose_answer_was_lost_stands_with_what_follows(bench: FlowBench) -> None:
    one = bench.running()
    follow_up = new_task(project_id=one.project_id, inside=True)
    bench.rt.window.note(bench.store, [follow_up])
    bench.store.lose_answers = 1
    complete(bench.rt, one, Outcome(TaskState.SUCCEEDED, b"r", continuations=(follow_up,)))
    assert bench.task(one.task_id).result == b"r"
    bench.pass_time(3.1)
    dispatch(bench.rt)
    assert bench.claim("w1", follow_up.id) is not None


def test_the_outcome_of_an_older_run_is_not_taken_for_mine(bench: FlowBench) -> None:
    old = bench.running("w1")
    bench.pass_time(7)
    dispatch(bench.rt)
    new = bench.claim("w2", old.task_id)
    assert new is not None
    complete(bench.rt, new, Outcome(TaskState.SUCCEEDED))
    bench.store.lose_answers = 1
    with pytest.raises(LeaseLost):
        complete(bench.rt, old, Outcome(TaskState.FAILED))


def test_a_retry_whose_answer_was_lost_stands(bench: FlowBench) -> None:
    one = bench.running()
    again = new_task(id=one.task_id, body=b"again")
    bench.store.lose_answers = 1
    retry(bench.rt, one, again)
    bench.pass_time(3.1)
    dispatch(bench.rt)
    assert bench.sent[-1].message == again.message
    assert bench.claim("w2", one.task_id) is not None


@pytest.mark.parametrize("key", [None, "order-18"])
def test_an_enqueue_whose_answer_was_lost_is_one_task(bench: FlowBench, key: str | None) -> None:
    bench.enqueue()
    task = new_task(key=key)
    bench.store.lose_answers = 1
    (enqueued,) = enqueue(bench.rt, [task])
    assert (enqueued.task_id, enqueued.differs) == (task.id, False)
    bench.pass_time(3.1)
    dispatch(bench.rt)
    assert bench.claim("w1", task.id) is not None


def test_the_same_message_under_the_same_id_is_a_success(bench: FlowBench) -> None:
    task = new_task()
    first, second = enqueue(bench.rt, [task]), enqueue(bench.rt, [task])
    assert (first[0].task_id, first[0].created) == (task.id, True)
    assert (second[0].task_id, second[0].created, second[0].differs) == (task.id, False, False)


def test_a_run_whose_task_became_a_dead_letter_under_its_token_has_lost_its_lease(bench: FlowBench) -> None:
    claim = bench.running(max_losses=1)
    bench.pass_time(7)
    assert dispatch(bench.rt).dead == (claim.task_id,)
    assert bench.task(claim.task_id).fence == claim.token
    with pytest.raises(LeaseLost):
        complete(bench.rt, claim, Outcome(TaskState.SUCCEEDED))
    assert bench.task(claim.task_id).outcome == TaskState.DEAD
