"""What a user's own result backend, or a dead letter's errback, is owed is paid by whoever sweeps, once."""

from __future__ import annotations

from typing import Any

import pytest
from celery.exceptions import TaskRevokedError

from argus_celery import durable, errors
from argus_celery.flow.claim import claim
from argus_celery.flow.complete import complete
from argus_celery.flow.lapse import lapse
from argus_celery.records import Claim, Delivery, Outcome, TaskState
from tests.integration.embedded import Shop, shop

pytestmark = pytest.mark.redis

GRACE = 11_000


@pytest.fixture
def bench(sqlite_store_url: str, redis_broker: str) -> Shop:
    made = shop(sqlite_store_url, redis_broker, redis_broker)

    @durable(max_losses=1)
    @made.app.task(shared=False, name="shop.work")
    def work() -> None:
        """Runs only as far as a test says."""

    @durable
    @made.app.task(shared=False, name="shop.told")
    def told() -> None:
        """An errback that is sent."""

    @made.app.task(shared=False, name="shop.called")
    def called(request: Any, error: Any, traceback: Any) -> None:
        made.log.append((request.id, type(error).__name__))

    return made


def _claimed(bench: Shop, **options: Any) -> tuple[Any, Claim]:
    result = bench.app.tasks["shop.work"].apply_async(**options)
    granted = claim(bench.argus.runtime, "w1", [Delivery(result.id, 1)])[0]
    assert granted is not None
    return result, granted


def _pay(bench: Shop) -> int:
    bench.argus.runtime.store.clock_shift += GRACE
    return bench.argus.pay_debts()


def test_a_result_that_did_not_reach_its_backend_is_told_later(bench: Shop) -> None:
    result, granted = _claimed(bench)
    document = bench.argus.results.document({"sum": 7}, "SUCCESS", None, None)
    complete(bench.argus.runtime, granted, Outcome(TaskState.SUCCEEDED, result=document, undelivered=True))
    assert bench.argus.pay_debts() == 0, "the run is given its time to pay by itself"
    assert _pay(bench) == 1
    assert result.get(timeout=5) == {"sum": 7}
    assert _pay(bench) == 0


def test_a_failure_that_did_not_reach_its_backend_is_told_later(bench: Shop) -> None:
    result, granted = _claimed(bench)
    document = bench.argus.results.document(KeyError("lost"), "FAILURE", None, None)
    complete(bench.argus.runtime, granted, Outcome(TaskState.FAILED, result=document, error="x", undelivered=True))
    assert _pay(bench) == 1
    with pytest.raises(KeyError):
        result.get(timeout=5)


def test_a_debt_that_cannot_be_paid_does_not_keep_the_others_waiting(bench: Shop) -> None:
    for task_id, document in (("a", b"unreadable"), ("b", bench.argus.results.document(7, "SUCCESS", None, None))):
        _, granted = _claimed(bench, task_id=task_id)
        complete(bench.argus.runtime, granted, Outcome(TaskState.SUCCEEDED, result=document, undelivered=True))
    bench.argus.runtime.store.clock_shift += GRACE
    assert [bench.argus.pay_debts(limit=1) for _ in range(3)] == [0, 1, 0]
    assert bench.app.AsyncResult("b").get(timeout=5) == 7


def test_a_dead_letter_fails_its_result_and_calls_its_errbacks_once(bench: Shop) -> None:
    errbacks = [bench.app.tasks["shop.told"].si(), bench.app.tasks["shop.called"].s()]
    result, granted = _claimed(bench, link_error=errbacks)
    assert lapse(bench.argus.runtime, "w1", result.id, granted.token, "killed") is TaskState.DEAD
    assert bench.argus.pay_debts() == 1
    assert bench.argus.pay_debts() == 0
    with pytest.raises(errors.TaskDead, match="killed"):
        result.get(timeout=5)
    assert bench.names() == ["told", "work"]
    assert bench.log == [(result.id, "TaskDead")]


def test_the_errback_of_a_dead_letter_is_sent_though_its_project_is_closed(bench: Shop) -> None:
    project = bench.argus.project("import")
    with project:
        result, granted = _claimed(bench, link_error=bench.app.tasks["shop.told"].si())
    project.close()
    lapse(bench.argus.runtime, "w1", result.id, granted.token, "killed")
    with pytest.raises(TimeoutError):
        project.join(timeout=0.1)
    assert bench.argus.pay_debts() == 1
    assert bench.names() == ["told", "work"]


def test_a_task_that_was_cancelled_before_it_ran_is_revoked_for_its_backend(bench: Shop) -> None:
    project = bench.argus.project("import")
    with project:
        result = bench.app.tasks["shop.work"].delay()
    project.cancel()
    assert bench.argus.pay_debts() == 1
    with pytest.raises(TaskRevokedError):
        result.get(timeout=5)
