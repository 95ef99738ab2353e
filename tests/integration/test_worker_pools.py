"""Renewal, lost leases and shutdown in every pool."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from argus_celery.records import AttemptOutcome, TaskState
from tests.faults.ledger import wait_for
from tests.integration.workers import Bench, bench

pytestmark = pytest.mark.redis

POOLS = ["prefork", "threads", "solo", "gevent"]


@pytest.fixture
def workers(redis_broker: str, tmp_path: Path) -> Iterator[Bench]:
    with bench(redis_broker, tmp_path, settings={"lease_ttl": 3}) as one:
        yield one


@pytest.fixture
def patient(redis_broker: str, tmp_path: Path) -> Iterator[Bench]:
    """With a TTL that no test waits for."""
    with bench(redis_broker, tmp_path, settings={"lease_ttl": 60}) as one:
        yield one


@pytest.mark.parametrize("pool", POOLS)
def test_a_run_far_beyond_the_ttl_is_renewed_and_runs_once(workers: Bench, pool: str) -> None:
    workers.worker("w1", pool=pool)
    workers.worker("w2", pool=pool)
    task_id = workers.send("slow", "long", 8)
    ended = workers.wait_ended(task_id, within=20)
    assert (ended.state, ended.attempts, ended.losses) == (TaskState.SUCCEEDED, 1, 0)
    assert len(workers.ledger.lines("start", "long")) == 1


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("task", ["slow", "asleep"])
def test_a_frozen_worker_is_told_that_its_lease_went_to_another(workers: Bench, pool: str, task: str) -> None:
    frozen = workers.worker("frozen", pool=pool)
    task_id = workers.send(task, "z", 15)
    first = workers.wait("start", "z")[0]
    frozen.freeze()
    other = workers.worker("other", pool=pool)
    second = workers.wait("start", "z", count=2, within=12)[1]
    assert second.token > first.token
    frozen.thaw()
    if not (pool == "threads" and task == "asleep"):  # a call that blocks a thread is not cut short
        assert workers.wait("told", "z", within=5)[0].token == first.token
        # The other worker may fetch one of these behind its long run; the told one takes what comes to it.
        after = [workers.send("slow", f"after-{number}", 0) for number in range(8)]
        wait_for(lambda: any(workers.task(one).state is TaskState.SUCCEEDED for one in after), 5, "it takes new work")
    ended = workers.wait_ended(task_id, within=40)
    assert ended.state is TaskState.SUCCEEDED
    assert [line.token for line in workers.ledger.lines("end", "z")][:1] == [second.token]
    assert frozen.running and other.running


@pytest.mark.parametrize("pool", POOLS)
def test_a_warm_shutdown_lets_the_run_end_and_renews_it_until_then(workers: Bench, pool: str) -> None:
    node = workers.worker("w1", pool=pool)
    task_id = workers.send("slow", "w", 6)
    workers.wait("start", "w")
    node.terminate()
    workers.worker("w2", pool=pool)
    ended = workers.wait_ended(task_id, within=15)
    assert (ended.state, ended.attempts) == (TaskState.SUCCEEDED, 1)
    node.wait_exit(5)


@pytest.mark.parametrize("pool", ["threads", "solo", "gevent"])
@pytest.mark.parametrize("task", ["slow", "asleep"])
def test_a_cold_shutdown_hands_over_without_a_loss(patient: Bench, pool: str, task: str) -> None:
    node = patient.worker("w1", pool=pool)
    seconds = 8 if (pool, task) == ("threads", "asleep") else 30
    task_id = patient.send(task, "c", seconds)
    patient.wait("start", "c")
    node.quit()
    node.wait_exit(12 if seconds == 8 else 6)
    ended = wait_for(lambda: patient.attempts(task_id), 2, "the attempt is noted")
    if seconds == 8:
        assert ended[0].outcome in (AttemptOutcome.SUCCEEDED, AttemptOutcome.RELEASED)
        return
    assert [one.outcome for one in ended] == [AttemptOutcome.RELEASED]
    assert patient.task(task_id).losses == 0
    patient.worker("w2", pool=pool)
    patient.wait("start", "c", count=2, within=5)


@pytest.mark.parametrize("pool", ["threads", "solo", "gevent"])
def test_a_revoked_run_is_cancelled_and_told(patient: Bench, pool: str) -> None:
    patient.worker(pool=pool, concurrency=1 if pool == "solo" else 2)
    task_id = patient.send("slow", "r", 6)
    patient.wait("start", "r")
    patient.app.control.revoke(task_id, terminate=True)
    if pool == "solo":  # its one thread runs the body: the word is heard when the body is over
        assert patient.wait_ended(task_id, within=10).state in (TaskState.SUCCEEDED, TaskState.CANCELLED)
        return
    assert patient.wait_ended(task_id, within=4).state is TaskState.CANCELLED
    patient.wait("told", "r", within=4)
    after = patient.send("slow", "after", 0)
    assert patient.wait_ended(after, within=5).state is TaskState.SUCCEEDED


def test_a_killed_child_of_a_busy_pool_costs_no_other_run(patient: Bench) -> None:
    node = patient.worker(concurrency=3)
    ids = [patient.send("slow", f"b{n}", 2) for n in range(3)]
    victim = patient.wait("start", "b1")[0]
    patient.wait("start", count=3)
    node.kill_child(victim.pid)
    ended = [patient.wait_ended(one, within=10) for one in ids]
    assert [one.losses for one in ended] == [0, 1, 0]
    assert len(patient.ledger.lines("start")) == 4


@pytest.mark.parametrize("pool", POOLS)
def test_a_body_that_exits_or_runs_out_of_memory_costs_the_worker_nothing(patient: Bench, pool: str) -> None:
    node = patient.worker(pool=pool)
    greedy, leaver = patient.send("greedy", "g"), patient.send("leaver", "l")
    assert patient.wait_ended(greedy, within=8).state is TaskState.FAILED
    ended = patient.wait_ended(leaver, within=8)
    assert (ended.state, ended.losses) == (TaskState.SUCCEEDED, 1)
    after = patient.send("slow", "after", 0)
    assert patient.wait_ended(after, within=5).state is TaskState.SUCCEEDED
    assert node.running


def test_a_hard_time_limit_under_gevent_is_one_failure(patient: Bench) -> None:
    patient.worker(pool="gevent")
    task_id = patient.send("limited", "x", 60, link_error=patient.app.tasks["errback"].s())
    assert patient.wait_ended(task_id, within=8).state is TaskState.FAILED
    patient.wait("errback", task_id)
    assert [one.detail for one in patient.ledger.lines("failure", task_id)] == ["TimeLimitExceeded"]
