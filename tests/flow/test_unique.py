"""Unique tasks: while one of a kind lives, another enqueue leads to it, whatever becomes of its workers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from argus_celery.errors import NotRetriable
from argus_celery.flow.claim import adopt
from argus_celery.flow.complete import complete
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.enqueue import enqueue
from argus_celery.flow.lapse import lapse
from argus_celery.flow.restart import restart
from argus_celery.flow.retry import retry
from argus_celery.flow.revive import Knowledge, retry_failed
from argus_celery.flow.revive import retry as put_back
from argus_celery.flow.revoke import revoke
from argus_celery.records import Outcome, TaskState
from tests.flow.conftest import FlowBench
from tests.flow.faults import meanwhile
from tests.store.bench import new_task

DONE, BROKE = Outcome(TaskState.SUCCEEDED), Outcome(TaskState.FAILED, error="broke")
APP = Knowledge(lambda name: None, lambda message: ())


def test_a_second_enqueue_leads_to_the_one_that_lives_in_whatever_state(bench: FlowBench) -> None:
    first = bench.enqueue(unique="a", project="one")
    assert bench.enqueue(unique="a", project="two", body=b"other arguments") == first
    claim = bench.claim()
    assert claim is not None
    assert bench.enqueue(unique="a") == first
    retry(bench.rt, claim, new_task(id=first, delay_ms=60_000), "later")
    assert bench.enqueue(unique="a") == first
    assert bench.enqueue(unique="b") != first


def test_in_one_batch_too(bench: FlowBench) -> None:
    one, other, third = enqueue(bench.rt, [new_task(unique="a"), new_task(unique="a"), new_task(unique="b")])
    assert (one.created, other.created, third.created) == (True, False, True)
    assert other.task_id == one.task_id
    assert len(bench.sent) == 2


@pytest.mark.parametrize("end", ["succeeds", "fails", "is revoked", "dies"])
def test_when_it_has_ended_the_next_is_a_task_of_its_own(bench: FlowBench, end: str) -> None:
    first = bench.enqueue(unique="a", max_losses=1)
    claim = bench.claim()
    assert claim is not None
    match end:
        case "is revoked":
            revoke(bench.rt, [first])
        case "dies":
            bench.pass_time(7)
            dispatch(bench.rt)
        case _:
            complete(bench.rt, claim, DONE if end == "succeeds" else BROKE)
    assert bench.enqueue(unique="a") != first


def test_a_killed_worker_blocks_nothing_for_longer_than_its_task_lives(bench: FlowBench) -> None:
    claim = bench.running(unique="a", max_losses=2)
    lapse(bench.rt, "w1", claim.task_id, claim.token, "signal 9")
    assert bench.enqueue(unique="a") == claim.task_id
    assert bench.claim("w2", claim.task_id) is not None
    bench.pass_time(7)
    dispatch(bench.rt)
    assert bench.task(claim.task_id).outcome == TaskState.DEAD
    assert bench.enqueue(unique="a") != claim.task_id


def test_of_many_that_enqueue_at_once_one_makes_the_task(bench: FlowBench) -> None:
    bench.enqueue()
    with ThreadPoolExecutor(6) as pool:
        found = set(pool.map(lambda _: bench.enqueue(unique="a"), range(12)))
    assert len(found) == 1


def test_who_comes_while_the_first_is_being_recorded_waits_and_finds_it(bench: FlowBench) -> None:
    from argus_celery.flow import steer
    from argus_celery.flow.enqueue import record

    bench.enqueue()
    first = new_task(unique="a", project_id=steer.open_project(bench.rt, "default"))
    found = meanwhile(bench.store, lambda c: record(bench.rt, c, [first]), lambda: bench.enqueue(unique="a"))
    assert found == first.id


def test_a_message_without_a_token_is_refused_where_its_kind_lives(bench: FlowBench) -> None:
    bench.enqueue(unique="a")
    assert adopt(bench.rt, new_task(unique="a")) == 0
    assert adopt(bench.rt, new_task(unique="b")) == 1


def test_what_is_put_back_is_unique_again_and_not_beside_another(bench: FlowBench) -> None:
    failed = [bench.running(unique="a")]
    complete(bench.rt, failed[0], BROKE)
    failed.append(bench.running(unique="a"))
    complete(bench.rt, failed[1], BROKE)
    ids = {claim.task_id for claim in failed}
    bench.history.revived |= ids
    [alive] = retry_failed(bench.rt, "default", APP)
    [other] = ids - {alive}
    assert bench.enqueue(unique="a") == alive
    with pytest.raises(NotRetriable, match=f"{alive} of its kind is alive"):
        put_back(bench.rt, "default", other, APP)
    revoke(bench.rt, [alive])
    assert put_back(bench.rt, "default", other, APP)


@pytest.mark.parametrize("again", ["retry_failed", "restart"])
def test_what_is_put_back_meets_one_of_its_kind_that_is_being_recorded(bench: FlowBench, again: str) -> None:
    from argus_celery.flow import steer
    from argus_celery.flow.enqueue import record

    failed = bench.running(unique="a", project="one")
    complete(bench.rt, failed, BROKE)
    bench.enqueue(project="two")
    twin = new_task(unique="a", project_id=steer.open_project(bench.rt, "two"))

    def put_back_too() -> object:
        if again == "retry_failed":
            return retry_failed(bench.rt, "one", APP)
        with pytest.raises(NotRetriable, match=f"{twin.id} of its kind is alive"):
            restart(bench.rt, "one", failed.task_id, APP)
        return []

    assert meanwhile(bench.store, lambda c: record(bench.rt, c, [twin]), put_back_too) == []
