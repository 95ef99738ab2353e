"""Tasks whose body is ``async def``, in every pool (docs/async.md)."""

from __future__ import annotations

from collections import Counter

import pytest
from celery import chain, chord, group

from argus_celery.records import AttemptOutcome, TaskState
from tests.faults.ledger import wait_for
from tests.integration.test_every_pool import EVENTLET
from tests.integration.workers import Bench

pytestmark = pytest.mark.redis

POOLS = ["prefork", "threads", "solo", "gevent"]


@pytest.mark.parametrize("pool", [*POOLS, "spawn"])
def test_coroutines_run_retry_and_make_canvases(patient: Bench, pool: str) -> None:
    patient.worker(pool=pool, concurrency=1 if pool == "solo" else 2)
    add, total = patient.app.tasks["aadd"], patient.app.tasks["total"]
    gathered = patient.app.tasks["gathering"].delay()
    results = {
        "run": (add.delay(1, 2), 3),
        "retry": (patient.app.tasks["aagain"].delay("r"), 2),
        "autoretry": (patient.app.tasks["aauto"].delay("a"), 2),
        "link": (add.apply_async((1, 2), link=add.s(4)), 3),
        "chain": (chain(add.s(1, 2), add.s(4))(), 7),
        "group": (group(add.s(number, 1) for number in range(3)).delay(), [1, 2, 3]),
        "chord": (chord([add.s(number, 1) for number in range(3)], total.s())(), 6),
        "started by a body": (gathered, [gathered.id] * 3),
    }
    assert {name: result.get(timeout=60) for name, (result, _) in results.items()} == {
        name: expected for name, (_, expected) in results.items()
    }
    assert [line.attempt for line in patient.ledger.lines("start", "r")] == [1, 2, 3]
    failed = patient.send("afailing", "f", link_error=patient.app.tasks["errback"].s())
    assert patient.wait_ended(failed, within=60).state is TaskState.FAILED
    patient.wait("errback", failed)
    assert [line.detail for line in patient.ledger.lines("failure", failed)] == ["ValueError"]


@pytest.mark.parametrize("pool", ["threads", "gevent"])
def test_coroutines_of_one_process_run_at_once_in_one_thread(patient: Bench, pool: str) -> None:
    patient.worker(pool=pool, concurrency=3)
    results = [patient.app.tasks["meet"].delay("m", 3) for _ in range(3)]
    assert len({result.get(timeout=60) for result in results}) == 1


@pytest.mark.parametrize("pool", POOLS)
def test_every_end_of_a_body_is_that_of_any_body(patient: Bench, pool: str) -> None:
    node = patient.worker(pool=pool)
    ends = {
        how: patient.send("aends", how, how)
        for how in ("ignore", "reject", "replace", "cancel", "state", "exit", "exit of a part")
    }
    found = {how: patient.wait_ended(task_id, within=60) for how, task_id in ends.items()}
    assert {how: info.state for how, info in found.items()} == {
        "ignore": TaskState.SUCCEEDED,
        "reject": TaskState.FAILED,
        "replace": TaskState.SUCCEEDED,
        "cancel": TaskState.FAILED,
        "state": TaskState.SUCCEEDED,
        "exit": TaskState.SUCCEEDED,
        "exit of a part": TaskState.SUCCEEDED,
    }
    assert patient.app.AsyncResult(ends["replace"]).get(timeout=60) == 3
    assert patient.app.AsyncResult(ends["state"]).get(timeout=60) == "told"
    assert "cancelled from inside" in (found["cancel"].error or "")
    assert (found["exit"].losses, found["exit of a part"].losses) == (1, 1)
    assert node.running


# --- it is stopped ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("pool", POOLS)
def test_a_revoked_coroutine_is_cancelled(workers: Bench, pool: str) -> None:
    workers.worker(pool=pool)
    task_id = workers.send("aslow", "r", 60)
    workers.wait("start", "r")
    workers.app.control.revoke(task_id)
    assert workers.wait_ended(task_id, within=4).state is TaskState.CANCELLED
    assert workers.wait("cancelled", "r", within=4)[0].detail == "True"
    after = workers.send("aadd", 1, 2)
    assert workers.wait_ended(after, within=60).state is TaskState.SUCCEEDED
    assert not workers.ledger.lines("end", "r")


@pytest.mark.parametrize("pool", POOLS)
def test_a_terminated_coroutine_is_cancelled_or_its_child_killed(patient: Bench, pool: str) -> None:
    patient.worker(pool=pool, concurrency=1 if pool == "solo" else 2)
    task_id = patient.send("aslow", "r", 8)
    patient.wait("start", "r")
    patient.app.control.revoke(task_id, terminate=True)
    assert patient.wait_ended(task_id, within=4).state is TaskState.CANCELLED
    if pool in ("threads", "gevent"):  # solo hears of it with its next renewal
        patient.wait("cancelled", "r", within=60)
    after = patient.send("aadd", 1, 2)
    assert patient.wait_ended(after, within=60).state is TaskState.SUCCEEDED


@pytest.mark.parametrize("pool", POOLS)
def test_a_coroutine_that_lost_its_lease_is_cancelled(workers: Bench, pool: str) -> None:
    frozen = workers.worker("frozen", pool=pool)
    task_id = workers.send("aslow", "z", 600, 5)  # however long the other takes to begin, the first is in its sleep
    first = workers.wait("start", "z")[0]
    frozen.freeze()
    other = workers.worker("other", pool=pool)
    second = workers.wait("start", "z", count=2, within=60)[1]
    frozen.thaw()
    assert workers.wait("cancelled", "z", within=60)[0].token == first.token
    ended = workers.wait_ended(task_id, within=60)
    assert (ended.state, ended.token) == (TaskState.SUCCEEDED, second.token)
    assert [line.token for line in workers.ledger.lines("end", "z")] == [second.token]
    assert frozen.running and other.running


@pytest.mark.parametrize("pool", POOLS)
def test_a_soft_time_limit_is_met_in_every_pool(patient: Bench, pool: str) -> None:
    patient.worker(pool=pool)
    soft = patient.app.tasks["asoft"]
    caught = [soft.delay(sort, 60, sort) for sort in ("limit", "cancelled")]
    assert [result.get(timeout=60) for result in caught] == ["in order", "in order"]
    let_out = patient.wait_ended(patient.send("asoft", "none", 60, "none"), within=60)
    assert let_out.state is TaskState.FAILED
    assert "SoftTimeLimitExceeded" in (let_out.error or "")
    assert soft.delay("early", 0, "none").get(timeout=60) == "late"


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("task", ["alimited", "ablocked_limited"])
def test_a_hard_time_limit_is_one_failure_in_every_pool(patient: Bench, pool: str, task: str) -> None:
    patient.worker(pool=pool)
    task_id = patient.send(task, "x", 6, link_error=patient.app.tasks["errback"].s())
    ended = patient.wait_ended(task_id, within=60)
    assert ended.state is TaskState.FAILED
    assert "TimeLimitExceeded(2)" in (ended.error or "")
    patient.wait("errback", task_id)
    after = patient.send("aadd", 1, 2)
    assert patient.wait_ended(after, within=60).state is TaskState.SUCCEEDED
    assert [line.detail for line in patient.ledger.lines("failure", task_id)] == ["TimeLimitExceeded"]
    assert len(patient.ledger.lines("start", "x")) == len(patient.ledger.lines("errback")) == 1
    assert not patient.ledger.lines("end", "x")


# --- the worker stops or dies -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("pool", POOLS)
def test_a_warm_shutdown_lets_the_coroutine_end_and_closes_the_loop(workers: Bench, pool: str) -> None:
    node = workers.worker("w1", pool=pool)
    opened = workers.send("opening", "o")
    assert workers.wait_ended(opened, within=60).state is TaskState.SUCCEEDED
    assert workers.ledger.lines("task cancelled", "o") and not workers.ledger.lines("client cancelled", "o")
    task_id = workers.send("aslow", "w", 5)
    workers.wait("start", "w")
    node.terminate()
    ended = workers.wait_ended(task_id, within=60)
    assert (ended.state, ended.attempts) == (TaskState.SUCCEEDED, 1)
    node.wait_exit(60)
    assert workers.ledger.lines("generator closed", "o") and workers.ledger.lines("client cancelled", "o")


@pytest.mark.parametrize("pool", POOLS)
def test_a_cold_shutdown_cancels_the_coroutine_and_hands_it_over_without_a_loss(patient: Bench, pool: str) -> None:
    node = patient.worker("w1", pool=pool)
    task_id = patient.send("aslow", "c", 60)
    patient.wait("start", "c")
    node.quit()
    node.wait_exit(60)
    assert patient.ledger.lines("cancelled", "c")
    ended = wait_for(lambda: patient.attempts(task_id), 60, "the attempt is noted")
    assert [one.outcome for one in ended] == [AttemptOutcome.RELEASED]
    assert patient.task(task_id).losses == 0
    patient.worker("w2", pool=pool)
    patient.wait("start", "c", count=2, within=60)


def test_a_child_that_dies_in_a_step_of_a_coroutine_goes_on_with_that_step(patient: Bench) -> None:
    node = patient.worker()
    task_id = patient.send("adying", "d")
    ended = patient.wait_ended(task_id, within=60)
    assert (ended.state, ended.attempts, ended.losses) == (TaskState.SUCCEEDED, 2, 1)
    assert patient.app.AsyncResult(task_id).get(timeout=60) == ["first", "beside", "dies", "last"]
    done = Counter(line.tag for line in patient.ledger.lines("act"))
    assert (done["first"], done["dies"]) == (1, 2)
    assert node.running


@pytest.mark.parametrize("pool", [EVENTLET])
def test_under_eventlet_coroutine_tasks_fail_and_say_so(patient: Bench, pool: str) -> None:
    patient.worker(pool=pool)
    ended = patient.wait_ended(patient.send("aadd", 1, 2), within=60)
    assert ended.state is TaskState.FAILED
    assert "use prefork, threads, solo or gevent" in (ended.error or "")
    assert patient.wait_ended(patient.send("add", 1, 2), within=60).state is TaskState.SUCCEEDED


@pytest.mark.parametrize("pool", POOLS)
def test_in_every_pool_a_wait_ends_what_runs_beside_it_and_a_thread_does_no_step_behind_it(
    patient: Bench, pool: str
) -> None:
    patient.worker(pool=pool)
    task_id = patient.send("abeside", "b")
    ended = patient.wait_ended(task_id, within=60)
    assert (ended.state, ended.attempts) == (TaskState.SUCCEEDED, 2)
    patient.wait("handled", "b", within=60)
    patient.wait("refused", "b", within=60)
    assert [line.attempt for line in patient.ledger.lines("act", "b")] == [1, 2]
    assert [line.attempt for line in patient.ledger.lines("cancelled", "b")] == [1]
    assert not patient.ledger.lines("late", "b")


# --- what blocks ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("pool", POOLS)
def test_a_coroutine_that_blocks_the_loop_keeps_its_lease(workers: Bench, pool: str) -> None:
    workers.worker("w1", pool=pool)
    workers.worker("w2", pool=pool)
    ended = workers.wait_ended(workers.send("ablocked", "b", 7), within=60)
    assert (ended.state, ended.attempts, ended.losses) == (TaskState.SUCCEEDED, 1, 0)
    assert len(workers.ledger.lines("start", "b")) == 1


@pytest.mark.parametrize("pool", POOLS)
def test_what_blocks_is_called_in_another_thread_and_the_loop_goes_on(patient: Bench, pool: str) -> None:
    at_once = 1 if pool in ("prefork", "solo") else 3
    patient.worker(pool=pool, concurrency=at_once)
    results = [patient.app.tasks["abusy"].delay("b", at_once) for _ in range(3)]
    assert [result.get(timeout=60) for result in results] == ["alike"] * 3
