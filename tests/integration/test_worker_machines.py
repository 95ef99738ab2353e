"""Workers that stop, die or freeze as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from argus_celery.records import AttemptOutcome, TaskState
from tests.faults.ledger import wait_for
from tests.integration.workers import Bench, bench

pytestmark = pytest.mark.redis


@pytest.fixture(params=["early", "late"])
def workers(request: pytest.FixtureRequest, redis_broker: str, tmp_path: Path) -> Iterator[Bench]:
    # A TTL that no test waits for: what is taken over was proven dead, or handed over.
    with bench(redis_broker, tmp_path, ack=request.param, settings={"lease_ttl": 60}) as one:
        yield one


def test_a_killed_worker_is_taken_over_at_once_by_one_of_another_name(workers: Bench) -> None:
    node = workers.worker("first")
    task_id = workers.send("slow", "k", 3)
    workers.wait("start", "k")
    node.kill()
    other = workers.worker("second")
    ready_at = other.wait_ready()
    second = workers.wait("start", "k", count=2, within=5)[1]
    assert second.time - ready_at < 0.5
    ended = workers.wait_ended(task_id, within=10)
    assert (ended.state, ended.losses) == (TaskState.SUCCEEDED, 1)


def test_a_killed_worker_is_taken_over_at_the_next_sweep_by_one_that_runs_beside_it(workers: Bench) -> None:
    node = workers.worker("first")
    task_id = workers.send("slow", "k", 30)
    workers.wait("start", "k")
    workers.worker("second")
    node.kill()
    workers.wait("start", "k", count=2, within=15)
    assert workers.task(task_id).losses == 1


@pytest.mark.parametrize("first_is", ["busy", "killed"])
def test_a_worker_with_nothing_to_do_takes_what_another_has_fetched_and_not_begun(
    workers: Bench, first_is: str
) -> None:
    """Well below the dispatch TTL of a minute, after which anybody would."""
    node = workers.worker("first")
    running = workers.send("slow", "run", 30)
    workers.wait("start", "run")
    fetched = [workers.send("slow", f"wait{n}", 0) for n in range(3)]
    wait_for(lambda: node.tail().count("received") == 4, 5, "all are prefetched")
    if first_is == "killed":
        node.kill()
    other = workers.worker("second", concurrency=2)
    for one in fetched:
        ended = workers.wait_ended(one, within=40)
        assert (ended.state, ended.attempts, ended.losses) == (TaskState.SUCCEEDED, 1, 0)
    assert workers.task(running).state is TaskState.RUNNING
    assert workers.task(running).losses == (first_is == "killed")
    assert other.running


def test_a_warm_shutdown_gives_unstarted_messages_back_and_finishes_what_runs(workers: Bench) -> None:
    node = workers.worker("first")
    running = workers.send("slow", "run", 12)
    workers.wait("start", "run")
    waiting = [workers.send("slow", f"wait{n}", 0) for n in range(3)]
    wait_for(lambda: node.tail().count("received") == 4, 5, "all are prefetched")
    node.terminate()
    ready_at = workers.worker("second").wait_ready()
    for one in waiting:
        assert workers.wait_ended(one, within=5).state is TaskState.SUCCEEDED
    assert workers.wait("start", "wait0")[0].time < ready_at + 2
    assert not workers.ledger.lines("end", "run")
    node.wait_exit(15)
    ended = workers.wait_ended(running, within=2)
    assert (ended.state, ended.attempts) == (TaskState.SUCCEEDED, 1)


def test_a_cold_shutdown_hands_over_what_it_cut_off_without_a_loss(workers: Bench) -> None:
    node = workers.worker("first")
    task_id = workers.send("slow", "c", 4)
    workers.wait("start", "c")
    node.quit()
    node.wait_exit(8)
    released = wait_for(lambda: workers.attempts(task_id), 2, "the attempt is noted")
    assert [one.outcome for one in released] == [AttemptOutcome.RELEASED]
    other = workers.worker("second")
    ready_at = other.wait_ready()
    assert workers.wait("start", "c", count=2, within=5)[1].time - ready_at < 0.5
    ended = workers.wait_ended(task_id, within=10)
    assert (ended.state, ended.losses) == (TaskState.SUCCEEDED, 0)


def test_an_idle_worker_exits_in_under_three_seconds(workers: Bench) -> None:
    node = workers.worker()
    node.terminate()
    node.wait_exit(3)
