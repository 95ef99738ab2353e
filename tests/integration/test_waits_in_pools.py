"""What waits holds no worker, in every pool, and goes on behind a kill (docs/waiting.md)."""

from __future__ import annotations

from typing import Any

import pytest

from argus_celery.records import TaskState
from tests.faults.ledger import wait_for
from tests.integration.test_every_pool import POOLS
from tests.integration.workers import Bench

pytestmark = pytest.mark.redis


def send(bench: Bench, event: str, payload: Any) -> bool:
    from argus_celery import Argus

    argus = Argus.of(bench.app)
    assert argus is not None
    return argus.project("default").send(event, payload)


def awaiting(bench: Bench, task_id: str) -> None:
    def found() -> bool:
        suspended = bench.task(task_id).suspended
        return suspended is not None and suspended.event is not None

    wait_for(found, 20, f"{task_id} waits for its event")


@pytest.mark.parametrize("pool", POOLS)
def test_every_pool_waits_and_goes_on(patient: Bench, pool: str) -> None:
    patient.worker(pool=pool)
    names = ["waiting"] if pool == "eventlet" else ["waiting", "awaiting"]
    results = {name: patient.app.tasks[name].delay(name) for name in names}
    for result in results.values():
        awaiting(patient, result.id)
    beside = patient.send("add", 1, 2)
    assert patient.wait_ended(beside, within=10).state is TaskState.SUCCEEDED
    for name, result in results.items():
        assert send(patient, f"answer {name}", {"to": name})
        assert result.get(timeout=20) == [{"to": name}, None]
        assert [line.attempt for line in patient.ledger.lines("start", name)] == [1, 2, 3]
        assert [line.attempt for line in patient.ledger.lines("step", name)] == [1]
        assert [line.attempt for line in patient.ledger.lines("awake", name)] == [2, 3]
        outcomes = [str(one.outcome) for one in patient.attempts(result.id)]
        assert outcomes == ["suspended", "suspended", "succeeded"]


def test_a_child_that_is_killed_behind_a_wait_does_not_wait_again(patient: Bench) -> None:
    patient.worker()
    result = patient.app.tasks["fragile"].delay("f")
    awaiting(patient, result.id)
    send(patient, "answer f", 42)
    assert result.get(timeout=30) == 42
    assert [str(one.outcome) for one in patient.attempts(result.id)] == ["suspended", "lost", "succeeded"]
    assert patient.task(result.id).losses == 1
