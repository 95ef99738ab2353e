"""A rescue is told in one line at WARNING: how many tasks run again, and whose they were."""

from __future__ import annotations

import logging

import pytest

from argus_celery.hooks.errands import Errands
from argus_celery.hooks.loop import Loop
from argus_celery.records import HolderFacts
from argus_celery.store import holders
from tests.flow.conftest import FlowBench


def worker(holder: str) -> HolderFacts:
    return HolderFacts(holder, f"celery@{holder}", "host", 1, "boot", "pidns", "start")


def test_a_boot_says_once_how_many_tasks_of_which_worker_run_again(
    bench: FlowBench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.store.transaction(lambda connection: holders.register(bench.store, connection, worker("w1")))
    for _ in range(3):
        bench.running("w1")
    bench.running("w2", max_losses=1)
    bench.pass_time(7)
    loop = Loop(bench.rt, worker("w3"), Errands(), lambda: None)
    with caplog.at_level(logging.WARNING, logger="argus_celery"):
        loop.run_once()
        loop.run_once()
    (line,) = [record.getMessage() for record in caplog.records]
    assert "3 of celery@w1 (w1), 1 of unknown (w2)" in line
    assert "1 lost their worker too often" in line
