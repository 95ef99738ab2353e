"""Rule 1: one terminal outcome per task, written by the newest token; tokens never fall."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlalchemy as sa

from argus_celery.errors import LeaseLost
from argus_celery.flow.claim import claim
from argus_celery.flow.complete import complete, complete_many
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.enqueue import enqueue
from argus_celery.flow.lapse import lapse
from argus_celery.flow.release import release
from argus_celery.flow.renew import renew
from argus_celery.flow.retry import retry
from argus_celery.flow.transaction import transaction
from argus_celery.records import Claim, Delivery, Outcome, TaskState
from argus_celery.store.schema import tasks
from tests.flow.conftest import FlowBench
from tests.store.bench import new_task

SUCCESS = Outcome(TaskState.SUCCEEDED, b"first")


def overtaken(bench: FlowBench) -> tuple[Claim, Claim]:
    """A holder that slept over its lease, and the one that has its task now."""
    old = bench.running("w1")
    bench.pass_time(7)
    dispatch(bench.rt)
    new = bench.claim("w2", old.task_id)
    assert new is not None
    return old, new


def test_stale_holder_cannot_complete_after_another_has_the_task(bench: FlowBench) -> None:
    old, new = overtaken(bench)
    follow_up = new_task(project_id=old.project_id, inside=True)
    with pytest.raises(LeaseLost):
        complete(bench.rt, old, Outcome(TaskState.SUCCEEDED, b"old", continuations=(follow_up,)))
    assert bench.task(follow_up.id) is None
    complete(bench.rt, new, SUCCESS)
    assert (bench.task(new.task_id).result, bench.task(new.task_id).fence) == (b"first", new.token)


def test_stale_holder_cannot_complete_even_while_its_task_waits_for_another(bench: FlowBench) -> None:
    old = bench.running("w1")
    bench.pass_time(7)
    dispatch(bench.rt)
    with pytest.raises(LeaseLost):
        complete(bench.rt, old, SUCCESS)
    assert bench.lease(old.task_id).token == old.token + 1


def test_of_two_runs_that_both_end_only_the_newest_outcome_stands(bench: FlowBench) -> None:
    old, new = overtaken(bench)
    complete(bench.rt, new, SUCCESS)
    with pytest.raises(LeaseLost):
        complete(bench.rt, old, Outcome(TaskState.FAILED, error="late"))
    row = bench.task(new.task_id)
    assert (row.outcome, row.error, row.fence) == ("succeeded", None, new.token)


@pytest.mark.parametrize("act", [
    lambda bench, old: retry(bench.rt, old, new_task(id=old.task_id, body=b"stale")),
    lambda bench, old: _transact(bench, old),
], ids=["retry", "transaction"])  # fmt: skip
def test_a_write_of_a_stale_holder_raises_and_changes_nothing(
    bench: FlowBench, act: Callable[[FlowBench, Claim], None]
) -> None:
    old, new = overtaken(bench)
    before = bench.lease(old.task_id), bench.task(old.task_id)
    with pytest.raises(LeaseLost):
        act(bench, old)
    assert (bench.lease(old.task_id), bench.task(old.task_id)) == before
    assert before[0].holder == new.holder


def test_a_stale_holder_can_neither_renew_nor_release_nor_report_the_lapse_of_what_another_holds(
    bench: FlowBench,
) -> None:
    old, _ = overtaken(bench)
    before = bench.lease(old.task_id)
    assert renew(bench.rt, "w1", [(old.task_id, old.token)]).lost == {(old.task_id, old.token)}
    assert release(bench.rt, "w1", [(old.task_id, old.token)], "shutdown") == []
    assert lapse(bench.rt, "w1", old.task_id, old.token, "signal 9") is None
    assert bench.lease(old.task_id) == before


def test_the_same_token_under_another_holders_name_is_no_ticket(bench: FlowBench) -> None:
    _, new = overtaken(bench)
    forged = Claim(new.task_id, new.token, "w1", new.project_id, new.ttl_ms, new.deadline)
    with pytest.raises(LeaseLost):
        complete(bench.rt, forged, SUCCESS)
    assert bench.lease(new.task_id).holder == "w2"


def test_a_stale_copy_is_refused_while_a_newer_one_is_on_its_way(bench: FlowBench) -> None:
    old = bench.running("w1")
    bench.pass_time(7)
    dispatch(bench.rt)
    before = bench.lease(old.task_id)
    assert claim(bench.rt, "w2", [Delivery(old.task_id, old.token - 1)]) == [None]
    assert bench.lease(old.task_id) == before


def test_a_message_with_the_token_of_the_run_in_hand_is_refused(bench: FlowBench) -> None:
    running = bench.running("w1")
    assert claim(bench.rt, "w2", [Delivery(running.task_id, running.token)]) == [None]
    assert bench.lease(running.task_id).holder == "w1"


def test_in_a_batch_the_stale_ones_are_left_out_and_the_others_stand(bench: FlowBench) -> None:
    old, new = overtaken(bench)
    mine = bench.running("w1")
    assert complete_many(bench.rt, [(old, SUCCESS), (mine, SUCCESS)]) == [False, True]
    assert bench.task(mine.task_id).outcome == "succeeded"
    assert bench.lease(new.task_id).token == new.token


def test_the_token_rises_at_each_grant_and_the_fence_keeps_the_last(bench: FlowBench) -> None:
    one = bench.running("w1")
    seen = [one.token]
    for holder in ("w2", "w3"):
        bench.pass_time(7)
        dispatch(bench.rt)
        again = bench.claim(holder, one.task_id)
        assert again is not None
        seen.append(again.token)
        one = again
    assert seen == sorted(set(seen))
    complete(bench.rt, one, SUCCESS)
    assert bench.task(one.task_id).fence == seen[-1]


def test_an_ended_task_is_never_granted_again(bench: FlowBench) -> None:
    one = bench.running()
    complete(bench.rt, one, SUCCESS)
    assert bench.claim("w2", one.task_id) is None
    bench.pass_time(100)
    assert dispatch(bench.rt).dispatched == ()


def test_a_key_ends_with_one_task_whoever_enqueues_it(bench: FlowBench, other: FlowBench) -> None:
    first = enqueue(bench.rt, [new_task(key="order-18")])[0]
    second = enqueue(other.rt, [new_task(key="order-18", body=b"other")])[0]
    assert (second.task_id, second.created, second.differs) == (first.task_id, False, True)
    rows = bench.store.statement(lambda c: c.execute(sa.select(tasks.c.id)).all())
    assert [row.id for row in rows] == [first.task_id]


def _transact(bench: FlowBench, old: Claim) -> None:
    with transaction(bench.rt, old) as connection:
        connection.execute(sa.update(tasks).values(error="written by a stale run"))
