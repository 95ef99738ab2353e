"""Packages whose base classes change how a task is called or run, and Celery's own helpers for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from celery.contrib.testing.worker import start_worker

from argus_celery.errors import HookError
from argus_celery.records import TaskState
from tests.integration.embedded import Shop, until


def test_a_worker_refuses_a_durable_task_of_celery_batches(made: Shop) -> None:
    batches = pytest.importorskip("celery_batches")

    @made.app.task(shared=False, name="shop.many", base=batches.Batches, flush_every=2)
    def many(requests: list[Any]) -> None:
        """Never runs."""

    with pytest.raises(HookError, match=r"shop\.many is made of celery-batches"), made.worker():
        pass


def test_an_ordinary_task_of_celery_batches_works_beside_durable_ones(made: Shop) -> None:
    batches = pytest.importorskip("celery_batches")

    @made.app.task(shared=False, name="plain.many", base=batches.Batches, flush_every=3, flush_interval=5)
    def many(requests: list[Any]) -> None:
        made.log.append(sorted(request.args[0] for request in requests))

    for number in range(3):
        many.delay(number)
    with made.worker():
        until(lambda: made.log, 20)
    assert made.log == [[0, 1, 2]]
    assert made.rows() == {}


@pytest.mark.redis
def test_a_durable_singleton_leads_to_the_task_that_waits_and_frees_its_lock_at_the_end(
    made: Shop, redis_broker: str
) -> None:
    singleton = pytest.importorskip("celery_singleton")
    made.app.conf.singleton_backend_url = redis_broker

    @made.app.task(shared=False, name="shop.one", base=singleton.Singleton)
    def one(x: int) -> int:
        made.log.append(x)
        return x

    first, second = one.delay(1), one.delay(1)
    assert first.id == second.id
    with made.worker():
        assert made.ended(first.id).state is TaskState.SUCCEEDED
        until(lambda: one.delay(1).id != first.id, 15)
        made.drained()
    assert made.log == [1, 1]


@pytest.mark.redis
def test_a_durable_singleton_that_retries_runs_again_in_spite_of_its_own_lock(made: Shop, redis_broker: str) -> None:
    singleton = pytest.importorskip("celery_singleton")
    made.app.conf.singleton_backend_url = redis_broker

    @made.app.task(shared=False, name="shop.one", base=singleton.Singleton, bind=True, max_retries=3)
    def one(self: Any) -> None:
        made.log.append(self.request.retries)
        if not self.request.retries:
            raise self.retry(countdown=0)

    result = one.delay()
    with made.worker():
        ended = made.ended(result.id)
    assert (ended.state, ended.retries, ended.losses) == (TaskState.SUCCEEDED, 1, 0)
    assert made.log == [0, 1]


def test_a_durable_task_of_celery_once_is_queued_once_and_again_when_it_has_ended(made: Shop, tmp_path: Path) -> None:
    celery_once = pytest.importorskip("celery_once")
    made.app.conf.ONCE = {"backend": "celery_once.backends.File", "settings": {"location": str(tmp_path / "once")}}

    @made.app.task(shared=False, name="shop.once", base=celery_once.QueueOnce)
    def once(x: int) -> int:
        made.log.append(x)
        return x

    first = once.delay(1)
    with pytest.raises(celery_once.AlreadyQueued):
        once.delay(1)
    with made.worker():
        assert made.ended(first.id).state is TaskState.SUCCEEDED
        until(lambda: not list((tmp_path / "once").iterdir()), 15)
        assert made.ended(once.delay(1).id).state is TaskState.SUCCEEDED
    assert made.log == [1, 1]


def test_celerys_start_worker_runs_durable_tasks_also_with_its_ping(made: Shop) -> None:
    import celery.contrib.testing.tasks  # noqa: F401 - celery.ping

    @made.app.task(shared=False, name="shop.add")
    def add(x: int, y: int) -> int:
        return x + y

    made.app.conf.result_backend = "argus://"
    made.app.set_current()
    with start_worker(made.app, pool="solo", perform_ping_check=True, shutdown_timeout=30):
        assert add.delay(1, 2).get(timeout=15) == 3
