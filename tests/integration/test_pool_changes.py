"""A pool that changes under its tasks: children that end in order are no losses, and what runs is renewed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from argus_celery.records import AttemptOutcome, TaskState
from tests.faults.ledger import wait_for
from tests.integration.workers import Bench, bench

pytestmark = pytest.mark.redis

TTL = 3


@pytest.fixture(params=["early", "late"])
def workers(request: pytest.FixtureRequest, redis_broker: str, tmp_path: Path) -> Iterator[Bench]:
    settings = {"lease_ttl": TTL}
    with bench(
        redis_broker, tmp_path, ack=request.param, settings=settings, conf={"worker_pool_restarts": True}
    ) as one:
        yield one


def ended_once(workers: Bench, ids: list[str], *, within: float) -> None:
    ended = [workers.wait_ended(one, within=within) for one in ids]
    assert {(one.state, one.attempts, one.losses) for one in ended} == {(TaskState.SUCCEEDED, 1, 0)}
    assert {one.outcome for id_ in ids for one in workers.attempts(id_)} == {AttemptOutcome.SUCCEEDED}
    assert len(workers.ledger.lines("start")) == len(workers.ledger.lines("end")) == len(ids)


def pids(workers: Bench) -> set[int]:
    return {line.pid for line in workers.ledger.lines("start")}


@pytest.mark.parametrize("pool", ["prefork", "spawn"])
@pytest.mark.parametrize("limit", ["--max-tasks-per-child=1", "--max-memory-per-child=1"])
def test_children_that_are_replaced_after_each_task_lose_none(workers: Bench, pool: str, limit: str) -> None:
    workers.worker("w1", limit, pool=pool, concurrency=2)
    ids = [workers.send("slow", f"t{number}", 0.2) for number in range(6)]
    ended_once(workers, ids, within=40)
    assert len(pids(workers)) == 6


def test_autoscale_takes_and_gives_children_and_the_long_run_stays(
    workers: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOSCALE_KEEPALIVE", "1")
    node = workers.launch("w1", "--autoscale=4,1", concurrency=None)
    node.wait_ready()
    ids = [workers.send("slow", "long", 4 * TTL), *(workers.send("slow", f"t{number}", 2) for number in range(3))]
    workers.wait("start", count=4)
    assert len(pids(workers)) == 4
    for one in ids[1:]:
        workers.wait_ended(one, within=10)
    # It looks at its size when a task comes in and when it beats.
    wait_for(lambda: "Scaling down" in node.tail(), 4 * TTL, "the pool shrinks")
    assert not workers.ledger.lines("end", "long")
    ended_once(workers, ids, within=20)


@pytest.mark.parametrize("pool", ["prefork", "spawn"])
def test_a_pool_restart_waits_for_what_runs(workers: Bench, pool: str) -> None:
    workers.worker("w1", pool=pool, concurrency=2)
    ids = [workers.send("slow", f"before-{number}", 2 * TTL) for number in range(2)]
    workers.wait("start", count=2, within=20)
    before = pids(workers)
    workers.app.control.pool_restart()
    ids += [workers.send("slow", f"after-{number}", 0.2) for number in range(2)]
    ended_once(workers, ids, within=40)
    assert pids(workers) - before


@pytest.mark.parametrize("pool", ["prefork", "gevent"])
def test_a_pool_grows_and_shrinks_under_what_runs(workers: Bench, pool: str) -> None:
    workers.worker("w1", pool=pool, concurrency=1)
    ids = [workers.send("slow", f"t{number}", 2 * TTL) for number in range(2)]
    workers.wait("start")
    workers.app.control.pool_grow(1)
    workers.wait("start", count=2)
    assert not workers.ledger.lines("end")
    workers.app.control.pool_shrink(1)
    ended_once(workers, ids, within=20)
    after = workers.send("slow", "after", 0)
    assert workers.wait_ended(after, within=10).state is TaskState.SUCCEEDED
