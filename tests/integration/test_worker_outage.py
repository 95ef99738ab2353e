"""The store goes away and comes back under a worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from argus_celery.records import TaskState
from tests.faults.ledger import lasting, wait_for
from tests.integration.workers import Bench, bench
from tests.services import PostgresServer, ServiceMissing

pytestmark = [pytest.mark.redis, pytest.mark.postgres, pytest.mark.slow]


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    try:
        server = PostgresServer()
    except ServiceMissing as missing:
        pytest.skip(str(missing))
    with server:
        yield server


@pytest.fixture
def workers(redis_broker: str, tmp_path: Path, postgres: PostgresServer) -> Iterator[Bench]:
    from argus_celery.store import setup
    from argus_celery.store.engine import Store

    store = Store(postgres.url, app_name="bodies")
    setup.make(store)
    store.dispose()
    with bench(redis_broker, tmp_path, store=postgres.url) as one:
        yield one


def test_a_store_that_restarts_costs_the_running_task_nothing(workers: Bench, postgres: PostgresServer) -> None:
    workers.worker(concurrency=2)
    running = workers.send("slow", "r", 8)
    workers.wait("start", "r")
    waiting = [workers.send("slow", f"w{n}", 0.1) for n in range(10)]
    postgres.kill()
    postgres.start()
    for one in [running, *waiting]:
        ended = workers.wait_ended(one, within=25)
        assert (ended.state, ended.losses) == (TaskState.SUCCEEDED, 0)
    assert len(workers.ledger.lines("start", "r")) == 1


def test_a_worker_starts_without_its_store_and_goes_on_when_it_comes(workers: Bench, postgres: PostgresServer) -> None:
    task_id = workers.send("slow", "w", 0)
    postgres.stop()
    node = workers.worker()
    wait_for(lambda: "waits for the store" in node.tail(), 5, "it says so")
    postgres.start()
    assert workers.wait_ended(task_id, within=15).state is TaskState.SUCCEEDED
    assert node.tail(100_000).count("waits for the store") == 1


def test_an_outage_beyond_the_ttl_tells_the_run_and_it_is_no_loss(workers: Bench, postgres: PostgresServer) -> None:
    node = workers.worker()
    task_id = workers.send("slow", "o", 20)
    workers.wait("start", "o")
    postgres.stop()
    workers.wait("told", "o", within=12)
    postgres.start()
    ended = workers.wait_ended(task_id, within=50)
    assert (ended.state, ended.losses) == (TaskState.SUCCEEDED, 0)
    assert len(workers.ledger.lines("end", "o")) == 1
    assert node.running


def test_an_outage_longer_than_the_progress_timeout_is_no_want_of_progress(
    workers: Bench, postgres: PostgresServer
) -> None:
    workers.worker(settings={"lease_ttl": 30})
    task_id = workers.send("steady", "s", 12)
    workers.wait("start", "s")
    postgres.stop()
    lasting(5)
    postgres.start()
    ended = workers.wait_ended(task_id, within=40)
    assert (ended.state, ended.attempts, ended.losses) == (TaskState.SUCCEEDED, 1, 0)
