"""A task that is enqueued in the producer's own transaction: as durable as its data, and never seen before it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import sqlalchemy as sa
from kombu.exceptions import OperationalError

from tests.faults import business
from tests.faults.bench import Bench
from tests.faults.ledger import lasting
from tests.faults.nodes import ROOT
from tests.faults.setup import T
from tests.faults.test_broker import EARLY


def call(bench: Bench, connection: sa.Connection, tag: str) -> str:
    """The row and the task in one transaction, as far as the system under test can."""
    business.insert(connection, tag)
    ours = {} if bench.setup.stock else {"argus_session": connection}
    return str(bench.app.tasks["readrow"].apply_async((tag,), **ours).id)


@pytest.fixture
def engine(bench: Bench) -> sa.Engine:
    return sa.create_engine(bench.setup.store, poolclass=sa.NullPool)


@pytest.mark.case("14", own_broker=True, aof=True)
def test_a_task_of_a_transaction_outlives_a_broker_that_is_away(bench: Bench, engine: sa.Engine) -> None:
    bench.broker.server.stop()
    began, error = bench.now(), None
    try:
        with engine.begin() as connection:
            task = call(bench, connection, "t")
    except OperationalError as raised:
        error = raised
    took = bench.now() - began
    assert error is None
    assert took < 1
    bench.accepted.append(task)

    bench.broker.server.start()
    bench.worker("one")
    back = bench.now()

    bench.recovered(back, bench.ledger.wait("run", "t", within=T)[0], within=T)
    bench.wait_ended(task)
    assert [line.detail for line in bench.ledger.lines("run", "t")] == ["1"]


@pytest.mark.case("14-killed")
def test_a_task_whose_producer_is_killed_between_commit_and_publish_runs_once(bench: Bench) -> None:
    bench.worker("one")
    producer = [sys.executable, "-m", "tests.faults.producer", "of-the-killed", "t"]
    killed = subprocess.run(producer, cwd=ROOT, env={**os.environ, **bench.setup.environment()})
    assert killed.returncode == -9
    bench.accepted.append("of-the-killed")
    at = bench.now()

    bench.recovered(at, bench.ledger.wait("run", "t", within=T)[0], within=T)
    bench.wait_ended("of-the-killed")
    assert [line.detail for line in bench.ledger.lines("run", "t")] == ["1"]


@pytest.mark.case("15")
def test_a_task_of_an_open_transaction_is_never_early_and_goes_with_a_rollback(bench: Bench, engine: sa.Engine) -> None:
    bench.worker("one")
    with engine.connect() as connection:
        task = call(bench, connection, "t")
        lasting(2)
        committed = bench.now()
        connection.commit()
    bench.accepted.append(task)
    run = bench.ledger.wait("run", "t", within=T)[0]
    assert (run.detail, run.time > committed - EARLY) == ("1", True)
    bench.recovered(committed, run, within=T)

    with engine.connect() as connection:
        ghost = call(bench, connection, "ghost")
        lasting(2)
        connection.rollback()
    bench.wait_ended(bench.send("quick", "behind"))
    assert bench.times("run", ["t", "ghost", "behind"]) == {"t": 1, "ghost": 0, "behind": 1}
    assert bench.setup.stock or bench.info(ghost) is None
