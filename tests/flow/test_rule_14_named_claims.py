"""Rule 14: what the main process writes for its children names the token; a successor is never touched."""

from __future__ import annotations

from argus_celery.flow.lapse import lapse
from argus_celery.flow.release import release
from argus_celery.flow.renew import renew
from argus_celery.records import Claim, TaskState
from tests.flow.conftest import FlowBench


def successor(bench: FlowBench) -> tuple[Claim, Claim]:
    """The same worker lost a child and has the task again."""
    old = bench.running("w1")
    assert lapse(bench.rt, "w1", old.task_id, old.token, "signal 9") is TaskState.QUEUED
    new = bench.claim("w1", old.task_id)
    assert new is not None
    return old, new


def test_the_token_of_a_claim_is_the_one_of_its_message_plus_one(bench: FlowBench) -> None:
    claim = bench.running()
    assert claim.token == bench.sent[-1].token + 1


def test_a_late_report_of_a_lost_child_does_not_touch_the_same_workers_next_run(bench: FlowBench) -> None:
    old, new = successor(bench)
    assert lapse(bench.rt, "w1", old.task_id, old.token, "signal 9") is None
    assert (bench.lease(new.task_id).token, bench.task(new.task_id).losses) == (new.token, 1)


def test_a_late_release_does_not_hand_back_the_same_workers_next_run(bench: FlowBench) -> None:
    old, new = successor(bench)
    assert release(bench.rt, "w1", [(old.task_id, old.token)], "shutdown") == []
    assert bench.lease(new.task_id).holder == "w1"


def test_a_renewal_tells_the_old_run_and_keeps_the_new_one(bench: FlowBench) -> None:
    old, new = successor(bench)
    renewal = renew(bench.rt, "w1", [(old.task_id, old.token), (new.task_id, new.token)])
    assert renewal.held == {(new.task_id, new.token)}
    assert renewal.lost == {(old.task_id, old.token)}


def test_a_renewal_of_the_old_run_alone_does_not_prolong_the_new_one(bench: FlowBench) -> None:
    old, new = successor(bench)
    before = bench.lease(new.task_id)
    bench.pass_time(2)
    assert renew(bench.rt, "w1", [(old.task_id, old.token)]).held == frozenset()
    assert bench.lease(new.task_id) == before


def test_of_a_batch_of_claims_only_those_still_held_are_released(bench: FlowBench) -> None:
    old, new = successor(bench)
    mine = bench.running("w1")
    released = release(bench.rt, "w1", [(old.task_id, old.token), (mine.task_id, mine.token)], "shutdown")
    assert released == [mine.task_id]
    assert bench.lease(new.task_id).token == new.token


def test_a_claim_that_a_child_has_yet_to_make_is_neither_held_nor_lost(bench: FlowBench) -> None:
    task_id = bench.enqueue()
    renewal = renew(bench.rt, "w1", [(task_id, 2)])
    assert (renewal.held, renewal.lost) == (frozenset(), frozenset())
