"""Beat doubles, drops or dies: for each due instant there is one task, and it runs once."""

from __future__ import annotations

from itertools import pairwise

import pytest
import sqlalchemy as sa

from tests.faults.bench import Bench
from tests.faults.ledger import Line, lasting, wait_for
from tests.faults.nodes import BOOT
from tests.faults.setup import T

EVERY = 3
SCHEDULE = {"beat_schedule": {"tick": {"task": "quick", "schedule": EVERY, "args": ["tick"]}}}


@pytest.mark.case("22", own_broker=True, conf=SCHEDULE, settings={"catch_up": "all"})
def test_two_beats_and_a_broker_that_is_away_give_one_run_for_each_instant(bench: Bench) -> None:
    bench.worker("one", 2)
    beats = [bench.beat("beat-1"), bench.beat("beat-2")]
    bench.ledger.wait("run", "tick", count=2, within=BOOT)

    bench.broker.server.stop()
    before = len(_instants(bench))
    lasting(2 * EVERY)
    bench.broker.server.start()
    back = bench.now()

    wait_for(lambda: len(_instants(bench)) >= before + 4, 4 * EVERY + T, "beats tick on")
    for beat in beats:
        beat.kill()
    runs = _one_run_for_each_instant(bench)
    assert {later - first for first, later in pairwise(_instants(bench))} == {EVERY * 1000}, "an instant is missing"
    bench.recovered(back, runs[before], within=T)


@pytest.mark.case("22-kill", conf=SCHEDULE)
def test_a_beat_that_dies_between_its_insert_and_its_publish_loses_and_doubles_nothing(bench: Bench) -> None:
    bench.worker("one", 2)
    first = bench.beat("beat", dies_recording="quick")
    first.may_exit = True
    first.wait_exit(BOOT)
    killed = bench.ledger.wait("killed", within=1)[0]
    assert len(_instants(bench)) == 1
    assert not bench.ledger.lines("run", "tick")

    beat = bench.beat("beat")
    run = bench.ledger.wait("run", "tick", within=T)[0]
    wait_for(lambda: len(_instants(bench)) >= 3, BOOT, "beat ticks on")
    beat.kill()
    _one_run_for_each_instant(bench)
    assert run.task_id == killed.task_id or run.time > killed.time
    bench.recovered(killed.time, bench.ledger.wait("run", "tick", within=T)[0], within=T + BOOT)


def _instants(bench: Bench) -> list[int]:
    """The due instants that have a task."""
    return sorted(due for due, _ in _ticks(bench))


def _ticks(bench: Bench) -> list[tuple[int, str]]:
    if bench.setup.stock:
        return []
    from argus_celery.flow.tick import due_of
    from argus_celery.store.schema import tasks

    with bench.store.engine.connect() as connection:
        rows = list(connection.execute(sa.select(tasks.c.id, tasks.c.key).where(tasks.c.name == "quick")))
    found = [(due_of(row.key), row.id) for row in rows]
    return [(round(due.timestamp() * 1000), task_id) for due, task_id in found if due is not None]


def _one_run_for_each_instant(bench: Bench) -> list[Line]:
    ids = [task_id for _, task_id in sorted(_ticks(bench))]
    bench.accepted += ids
    bench.wait_ended(*ids)
    runs = bench.ledger.lines("run", "tick")
    assert sorted(run.task_id for run in runs) == sorted(ids)
    assert len(set(_instants(bench))) == len(ids)
    return sorted(runs, key=lambda run: ids.index(run.task_id))
