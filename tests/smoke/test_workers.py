"""Real workers and brokers as nodes of pytest-celery: what a user of both would try first."""

from __future__ import annotations

import pytest
from celery import chain, chord
from pytest_celery import CeleryTestSetup, CeleryTestWorker, CeleryWorkerCluster

from argus_celery.records import TaskState
from argus_celery.store import reports
from argus_celery.store.engine import Store
from tests.invariants import check_all_ended
from tests.services.server import wait_until
from tests.smoke.smoke_tasks import join, quick, slow

pytestmark = [pytest.mark.slow, pytest.mark.postgres]

WITHIN = 40


def test_a_durable_task_makes_its_round_trip(celery_setup: CeleryTestSetup, store: Store) -> None:
    assert celery_setup.ready(control=True)
    result = quick.delay("a")
    assert result.get(timeout=WITHIN) == "a"
    info = reports.task_info(store, result.id)
    assert info is not None
    assert (info.state, info.attempts, info.losses) == (TaskState.SUCCEEDED, 1, 0)
    celery_setup.worker.assert_log_exists("run a")
    _all_is_well(celery_setup.worker, store)


def test_canvas_goes_through_the_store(celery_setup: CeleryTestSetup, store: Store) -> None:
    assert chord([quick.s("a"), quick.s("b")], join.s())().get(timeout=WITHIN) == "ab"
    assert chain(quick.s("c"), quick.s())().get(timeout=WITHIN) == "c"
    _all_is_well(celery_setup.worker, store)


def test_two_workers_share_the_work(two_workers: CeleryWorkerCluster, store: Store) -> None:
    results = [slow.delay(f"t{number}", 0.3) for number in range(12)]
    assert [one.get(timeout=WITHIN) for one in results] == [f"t{number}" for number in range(12)]
    for worker in two_workers:
        worker.assert_log_exists("end t")
        _all_is_well(worker, store)


def test_a_task_whose_worker_is_killed_is_finished_by_the_other(two_workers: CeleryWorkerCluster, store: Store) -> None:
    result = slow.delay("a", 3)
    victim, other = _who_began(two_workers, "begin a attempt 1")
    victim.kill()
    assert victim.container.status == "exited"
    assert result.get(timeout=WITHIN) == "a"
    other.assert_log_exists("begin a attempt 2")
    victim.assert_log_does_not_exist("end a")
    info = reports.task_info(store, result.id)
    assert info is not None
    assert (info.attempts, info.losses) == (2, 1)
    _all_is_well(other, store)


def test_work_that_came_while_the_worker_was_down_runs_after_its_restart(
    celery_setup: CeleryTestSetup, store: Store
) -> None:
    worker = celery_setup.worker
    worker.kill()
    results = [quick.delay(f"t{number}") for number in range(5)]
    worker.restart()
    assert [one.get(timeout=WITHIN) for one in results] == [f"t{number}" for number in range(5)]
    for number in range(5):
        assert worker.logs().count(f"run t{number}\n") == 1
    _all_is_well(worker, store)


def test_a_restarted_worker_finishes_what_it_was_doing(celery_setup: CeleryTestSetup, store: Store) -> None:
    worker = celery_setup.worker
    result = slow.delay("a", 3)
    worker.wait_for_log("begin a attempt 1")
    worker.kill()
    worker.restart()
    assert result.get(timeout=WITHIN) == "a"
    worker.assert_log_exists("begin a attempt 2")
    _all_is_well(worker, store)


def test_a_broker_that_comes_back_empty_loses_no_task(celery_setup: CeleryTestSetup, store: Store) -> None:
    """Redis here keeps nothing on disk. RabbitMQ keeps its messages, and none of them runs twice."""
    worker = celery_setup.worker
    worker.kill()
    results = [quick.delay(f"t{number}") for number in range(5)]
    celery_setup.broker.kill()
    celery_setup.broker.restart()
    worker.restart()
    assert [one.get(timeout=WITHIN) for one in results] == [f"t{number}" for number in range(5)]
    for number in range(5):
        assert worker.logs().count(f"run t{number}\n") == 1
    check_all_ended(store)


def _who_began(workers: CeleryWorkerCluster, line: str) -> tuple[CeleryTestWorker, CeleryTestWorker]:
    first, second = workers
    assert wait_until(lambda: line in first.logs() or line in second.logs(), WITHIN)
    return (first, second) if line in first.logs() else (second, first)


def _all_is_well(worker: CeleryTestWorker, store: Store) -> None:
    assert "Traceback" not in worker.logs(), worker.logs()
    check_all_ended(store)
