"""What the doctor learns from a broker and from workers that answer."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import Celery

from argus_celery import Argus
from argus_celery.doctor import broker, examine, work
from argus_celery.doctor.findings import Finding, Level
from argus_celery.flow.enqueue import enqueue
from argus_celery.hooks import holder
from argus_celery.records import HolderFacts
from argus_celery.store import holders
from argus_celery.store.board import board
from tests.integration.embedded import Shop, shop
from tests.store.bench import new_task


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Shop]:
    """On ``argus://``; workers answer questions."""
    made = shop(f"sqlite:///{tmp_path / 'shop.db'}", f"argus://{tmp_path / 'shop.db'}")
    made.app.conf.worker_enable_remote_control = True

    @made.argus.durable
    @made.app.task(name="note", shared=False)
    def note() -> None:
        """Nothing."""

    yield made
    made.argus.runtime.store.dispose()


def levels(findings: Any) -> list[tuple[Level, str]]:
    return [(one.level, one.what) for one in findings]


def test_a_queue_that_no_worker_consumes_and_a_task_that_none_knows_are_told(embedded: Shop) -> None:
    argus = embedded.argus
    with embedded.worker():
        healthy = examine(argus)
        assert [one for one in healthy.findings if one.level is not Level.OK] == []
        assert healthy.worst_recovery == 32.0
        enqueue(argus.runtime, [new_task("note", queue="mail"), new_task("gone", queue="mail")])
        ((level, what),) = levels(work.consumers(argus))
        assert (level, what) == (Level.WARNING, "no worker consumes the queue 'mail', and 2 tasks wait for it")
        ((level, what),) = levels(work.names(argus))
        assert (level, what) == (Level.WARNING, "no worker knows gone, and 1 task waits for its code")
        silent = HolderFacts("wsilent", "celery@silent", "elsewhere", 1, "boot", "ns", "start")
        argus.runtime.store.transaction(lambda c: holders.register(argus.runtime.store, c, silent))
        for look in (work.consumers, work.names):
            ((level, what),) = levels(look(argus))
            assert (level, "celery@silent did not answer" in what) == (Level.UNKNOWN, True)


def test_a_worker_that_was_stopped_is_missed_at_once(embedded: Shop) -> None:
    argus = embedded.argus
    with embedded.worker():
        assert levels(work.consumers(argus))[0][0] is Level.OK
    enqueue(argus.runtime, [new_task("note")])
    told = (Level.WARNING, "no worker with Argus is there, and 1 task waits")
    assert levels(work.consumers(argus)) == [told]
    assert board(argus.runtime.store).workers == ()


def test_a_worker_that_died_on_this_host_is_missed_at_once(embedded: Shop) -> None:
    argus, process = embedded.argus, subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    began = holder._process(process.pid)
    assert began is not None
    facts = replace(holder.facts("celery@here"), id="wother", pid=process.pid, process_start=began[1])
    argus.runtime.store.transaction(lambda c: holders.register(argus.runtime.store, c, facts))
    assert "0 queues with work" in levels(work.consumers(argus))[0][1]
    process.communicate(b"\n")
    assert levels(work.consumers(argus)) == [(Level.OK, "no worker with Argus is there")]


def app_on(url: str, tmp_path: Path) -> Argus:
    return Argus(Celery("shop", broker=url, set_as_current=False), store=f"sqlite:///{tmp_path}/shop.db")


@contextmanager
def policy(url: str, name: str) -> Iterator[None]:
    """Of the whole server, so put back at once."""
    with redis.Redis.from_url(url) as client:
        before = client.config_get("maxmemory-policy")["maxmemory-policy"]  # type: ignore[index]
        client.config_set("maxmemory-policy", name)
        try:
            yield
        finally:
            client.config_set("maxmemory-policy", before)


@pytest.mark.redis
def test_a_redis_that_evicts_queues_is_told(redis_broker: str, tmp_path: Path) -> None:
    argus = app_on(redis_broker, tmp_path)
    assert levels(broker.reach(argus))[0][0] is Level.OK
    for name, level in (("noeviction", Level.OK), ("volatile-lru", Level.OK), ("allkeys-lru", Level.WARNING)):
        with policy(redis_broker, name):
            ((found, what),) = levels(broker.eviction(argus))
        assert (found, name in what) == (level, True)


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "amqp://127.0.0.1:1//"])
def test_a_broker_that_is_away_is_an_error_and_its_policy_is_not_known(url: str, tmp_path: Path) -> None:
    argus = app_on(url, tmp_path)
    assert [level for level, _ in levels(broker.reach(argus))] == [Level.ERROR]
    unknown: list[Finding] = list(broker.eviction(argus))
    assert [one.level for one in unknown] == ([Level.UNKNOWN] if url.startswith("redis") else [])


def test_a_broker_in_memory_is_warned_of(tmp_path: Path) -> None:
    assert [level for level, _ in levels(broker.reach(app_on("memory://", tmp_path)))] == [Level.WARNING]
