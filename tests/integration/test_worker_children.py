"""What a worker makes of a child that dies, of a time limit and of MemoryError."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from argus_celery.records import AttemptOutcome, TaskState
from tests.integration.workers import Bench, bench

pytestmark = pytest.mark.redis


@pytest.fixture(params=["early", "late"])
def workers(request: pytest.FixtureRequest, redis_broker: str, tmp_path: Path) -> Iterator[Bench]:
    with bench(redis_broker, tmp_path, ack=request.param) as one:
        yield one


def test_a_task_whose_child_is_killed_starts_again_within_a_second_and_is_no_failure(workers: Bench) -> None:
    node = workers.worker()
    task_id = workers.send("slow", "a", 3, link_error=workers.app.tasks["errback"].s())
    first = workers.wait("start", "a")[0]
    killed_at = node.kill_child(first.pid)
    second = workers.wait("start", "a", count=2)[1]
    assert second.time - killed_at < 1
    assert second.token > first.token
    assert (first.attempt, second.attempt) == (1, 2)
    ended = workers.wait_ended(task_id, within=10)
    assert (ended.state, ended.losses) == (TaskState.SUCCEEDED, 1)
    assert [one.outcome for one in workers.attempts(task_id)] == [AttemptOutcome.LOST, AttemptOutcome.SUCCEEDED]
    assert not workers.ledger.lines("failure")
    assert not workers.ledger.lines("errback")
    assert len(workers.ledger.lines("end")) == 1


def test_a_body_that_leaves_its_process_is_a_loss_and_runs_again(workers: Bench) -> None:
    workers.worker()
    task_id = workers.send("leaver", "l")
    ended = workers.wait_ended(task_id, within=10)
    assert (ended.state, ended.losses) == (TaskState.SUCCEEDED, 1)
    assert not workers.ledger.lines("failure")


def test_a_memory_error_fails_its_task_and_not_the_worker(workers: Bench) -> None:
    workers.worker()
    failed = workers.send("greedy", "g")
    ended = workers.wait_ended(failed, within=10)
    assert ended.state is TaskState.FAILED
    after = workers.send("slow", "after", 0)
    assert workers.wait_ended(after, within=10).state is TaskState.SUCCEEDED
    assert [one.detail for one in workers.ledger.lines("failure")] == ["MemoryError"]


def test_a_hard_time_limit_is_one_failure_with_one_errback(workers: Bench) -> None:
    workers.worker()
    task_id = workers.send("limited", "x", 60, link_error=workers.app.tasks["errback"].s())
    ended = workers.wait_ended(task_id, within=12)
    assert ended.state is TaskState.FAILED
    assert "TimeLimitExceeded" in (ended.error or "")
    workers.wait("errback", task_id)
    after = workers.send("slow", "after", 0)
    assert workers.wait_ended(after, within=10).state is TaskState.SUCCEEDED
    assert [one.detail for one in workers.ledger.lines("failure", task_id)] == ["TimeLimitExceeded"]
    assert len(workers.ledger.lines("start", "x")) == 1
    assert len(workers.ledger.lines("errback")) == 1


def test_a_child_stopped_beyond_the_ttl_is_renewed_by_its_parent(workers: Bench) -> None:
    node = workers.worker()
    task_id = workers.send("slow", "s", 2)
    first = workers.wait("start", "s")[0]
    os.kill(first.pid, signal.SIGSTOP)
    before = workers.eligible_at(task_id)
    workers.wait_renewed(task_id, before + 7000, within=15)
    os.kill(first.pid, signal.SIGCONT)
    ended = workers.wait_ended(task_id, within=10)
    assert (ended.state, ended.losses) == (TaskState.SUCCEEDED, 0)
    assert len(workers.ledger.lines("start", "s")) == 1
    assert node.running


def test_a_revoked_run_is_cancelled_once_and_its_child_goes_on(workers: Bench) -> None:
    workers.worker()
    task_id = workers.send("slow", "r", 60)
    workers.wait("start", "r")
    workers.app.control.revoke(task_id, terminate=True)
    ended = workers.wait_ended(task_id, within=5)
    assert ended.state is TaskState.CANCELLED
    after = workers.send("slow", "after", 0)
    assert workers.wait_ended(after, within=10).state is TaskState.SUCCEEDED
    assert len(workers.wait("revoked", task_id)) == 1
    assert len(workers.ledger.lines("start", "r")) == 1
