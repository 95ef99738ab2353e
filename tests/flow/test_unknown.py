"""A message whose worker lacks the task's code stays claimable for others, and is a dead letter after a deadline."""

from __future__ import annotations

import pytest

from argus_celery import signals
from argus_celery.flow.complete import complete
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.unknown import hand_on
from argus_celery.records import Outcome, TaskState
from argus_celery.store.tasks import OWES_MORE
from tests.flow.conftest import FlowBench
from tests.invariants import check_all_ended

DAY = 24 * 3600


def meet(bench: FlowBench, task_id: str) -> TaskState | None:
    """A worker without the code gets the newest message of it."""
    newest = next(one for one in reversed(bench.sent) if one.task_id == task_id)
    return hand_on(bench.rt, task_id, newest.token, 500)


def come_again(bench: FlowBench, task_id: str, seconds: float) -> TaskState | None:
    bench.pass_time(seconds)
    assert dispatch(bench.rt).dispatched == (task_id,)
    return meet(bench, task_id)


def test_what_one_worker_does_not_know_is_claimed_by_one_that_does(bench: FlowBench) -> None:
    task_id = bench.enqueue()
    assert meet(bench, task_id) is TaskState.WAITING
    assert bench.claim("w1", task_id) is None
    assert come_again(bench, task_id, 1) is TaskState.WAITING
    bench.pass_time(1)
    dispatch(bench.rt)
    run = bench.claim("w1", task_id)
    assert run is not None and bench.lease(task_id).unknown_since is None
    complete(bench.rt, run, Outcome(TaskState.SUCCEEDED))
    check_all_ended(bench.store)


def test_what_nobody_knew_until_the_deadline_is_a_dead_letter_that_owes_its_errbacks(bench: FlowBench) -> None:
    dead: list[str] = []

    def note(task_id: str, **_: object) -> None:
        dead.append(task_id)

    signals.task_dead.connect(note)
    task_id = bench.enqueue()
    meet(bench, task_id)
    assert come_again(bench, task_id, DAY - 10) is TaskState.WAITING
    assert come_again(bench, task_id, 20) is TaskState.DEAD
    row = bench.task(task_id)
    assert (row.outcome, row.undelivered, row.losses, row.attempts) == (TaskState.DEAD, OWES_MORE, 0, 0)
    assert row.error.startswith("no worker that took it knew the task for 864")
    assert meet(bench, task_id) is None
    assert dead == [task_id]
    check_all_ended(bench.store)


def test_a_claim_begins_the_deadline_anew(bench: FlowBench) -> None:
    task_id = bench.enqueue()
    meet(bench, task_id)
    bench.pass_time(DAY - 10)
    dispatch(bench.rt)
    assert bench.claim("w1", task_id) is not None
    assert come_again(bench, task_id, 100) is TaskState.WAITING


@pytest.mark.parametrize("never", [0, None])
def test_a_deadline_of_0_or_none_is_never(bench: FlowBench, never: int | None) -> None:
    object.__setattr__(bench.rt.settings, "unknown_deadline", never)
    task_id = bench.enqueue()
    meet(bench, task_id)
    assert come_again(bench, task_id, 1000 * DAY) is TaskState.WAITING


def test_a_stale_message_says_nothing_of_the_task(bench: FlowBench) -> None:
    task_id = bench.enqueue()
    assert bench.claim("w1", task_id) is not None
    assert meet(bench, task_id) is None
    assert bench.lease(task_id).unknown_since is None
