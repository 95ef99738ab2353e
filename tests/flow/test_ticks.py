"""Ticks: the row of an entry and the tasks of its instants are written together, by one of however many beats."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from argus_celery.errors import BadTask, ProjectClosed
from argus_celery.flow import steer
from argus_celery.flow.restore import sweep
from argus_celery.flow.tick import key_of, look, tick
from argus_celery.records import NewTask
from argus_celery.store import tasks
from tests.flow.conftest import FlowBench
from tests.flow.test_rule_06_refusals import everything
from tests.store.bench import new_task

NOON = 1_796_040_000_000


def _tasks(*instants: int) -> list[NewTask]:
    return [new_task(key=key_of("nightly", due)) for due in instants]


def test_a_tick_records_its_tasks_and_moves_the_entry_on(bench: FlowBench) -> None:
    assert look(bench.rt, "nightly").due_at is None
    (one,) = tick(bench.rt, "nightly", None, NOON, _tasks(NOON)) or ()
    assert one.created
    assert [sent.task_id for sent in bench.sent] == [one.task_id]
    assert look(bench.rt, "nightly").due_at == NOON
    assert tick(bench.rt, "nightly", NOON, NOON + 1, []) == []
    assert look(bench.rt, "nightly").due_at == NOON + 1
    assert look(bench.rt, "another").due_at is None


@pytest.mark.parametrize("stood", [None, NOON - 1])
def test_of_beats_that_tick_at_once_one_writes(bench: FlowBench, other: FlowBench, stood: int | None) -> None:
    if stood is not None:
        tick(bench.rt, "nightly", None, stood, [])
    bench.enqueue()
    start = threading.Barrier(4)

    def send(one: FlowBench) -> bool:
        start.wait()
        return tick(one.rt, "nightly", stood, NOON, _tasks(NOON)) is not None

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(send, [bench, other, bench, other])) == 1
    assert len({one.task_id for one in bench.sent}) == 2


def test_a_tick_that_cannot_be_recorded_leaves_the_entry_where_it_stood(bench: FlowBench) -> None:
    bench.enqueue(project="import")
    steer.close(bench.rt, "import")
    bench.sent.clear()
    before = everything(bench)
    with pytest.raises(ProjectClosed):
        tick(bench.rt, "nightly", None, NOON, [new_task(project="import")])
    with pytest.raises(BadTask):
        tick(bench.rt, "nightly", None, NOON, [new_task(key="k" * 256)])
    assert everything(bench) == before
    assert not bench.sent


def test_a_tick_whose_row_is_gone_leads_to_the_task_of_its_key(bench: FlowBench) -> None:
    (first,) = tick(bench.rt, "nightly", None, NOON, _tasks(NOON)) or ()
    with bench.store.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM argus_ticks")
    (again,) = tick(bench.rt, "nightly", None, NOON, _tasks(NOON)) or ()
    assert (again.task_id, again.created) == (first.task_id, False)


def test_a_beat_that_dies_before_it_publishes_has_its_task_sent_by_a_sweep(bench: FlowBench) -> None:
    """What ``kill -9`` between the commit and the publish leaves behind."""
    (one,) = tick(bench.rt, "nightly", None, NOON, _tasks(NOON)) or ()
    bench.sent.clear()
    bench.pass_time(bench.settings["dispatch_ttl"] + 1)
    sweep(bench.rt)
    assert [(sent.task_id, sent.token) for sent in bench.sent] == [(one.task_id, 1)]
    with bench.store.engine.begin() as connection:
        assert [task.id for task in tasks.known(connection, [], [(1, key_of("nightly", NOON))])] == [one.task_id]
