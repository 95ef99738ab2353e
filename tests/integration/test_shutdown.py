"""Shutdowns that cut runs off, in every pool: what is cut off is handed back at once, and is no loss."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from argus_celery.records import AttemptOutcome, TaskState
from tests.faults.ledger import wait_for
from tests.integration.workers import Bench, Worker, bench

pytestmark = pytest.mark.redis

POOLS = ["prefork", "threads", "solo", "gevent"]
SOFT = 4
"""Seconds of grace in a soft shutdown."""


@pytest.fixture
def workers(redis_broker: str, tmp_path: Path) -> Iterator[Bench]:
    """With a TTL that no test waits for: what runs again was handed over."""
    with bench(redis_broker, tmp_path, settings={"lease_ttl": 60}) as one:
        yield one


def handed_over(workers: Bench, task_id: str, tag: str) -> None:
    """The run was given back, without a loss, and the next worker begins at once."""
    released = wait_for(lambda: workers.attempts(task_id), 2, "the attempt is noted")
    assert [one.outcome for one in released] == [AttemptOutcome.RELEASED]
    workers.worker("next", pool="threads")
    workers.wait("start", tag, count=2, within=5)
    assert workers.task(task_id).losses == 0


def begun(workers: Bench, pool: str, **conf: object) -> tuple[Worker, str]:
    """A worker with a long run in hand."""
    node = workers.worker("first", pool=pool, concurrency=2, conf=conf)
    task_id = workers.send("slow", "long", 30)
    workers.wait("start", "long")
    return node, task_id


@pytest.mark.parametrize("pool", POOLS)
def test_a_soft_shutdown_lets_short_runs_end_and_hands_long_ones_over(workers: Bench, pool: str) -> None:
    node, long = begun(workers, pool, worker_soft_shutdown_timeout=SOFT)
    short = None if pool == "solo" else workers.send("slow", "short", 2)  # solo has one run, which its grace stops
    if short is not None:
        workers.wait("start", "short")
    node.quit()
    node.wait_exit(SOFT + 6)
    if short is not None:
        ended = workers.task(short)
        assert (ended.state, ended.attempts) == (TaskState.SUCCEEDED, 1)
    handed_over(workers, long, "long")


@pytest.mark.parametrize("pool", POOLS)
def test_a_sigterm_that_is_mapped_to_sigquit_hands_over(
    workers: Bench, pool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMAP_SIGTERM", "SIGQUIT")
    node, long = begun(workers, pool)
    node.terminate()
    node.wait_exit(6)
    handed_over(workers, long, "long")


@pytest.mark.parametrize("pool", POOLS)
def test_a_warm_shutdown_that_turns_cold_hands_over(workers: Bench, pool: str) -> None:
    node, long = begun(workers, pool)
    node.terminate()
    wait_for(lambda: "Warm shutdown" in node.tail(), 5, "the warm shutdown begins")
    node.quit()
    node.wait_exit(6)
    handed_over(workers, long, "long")
