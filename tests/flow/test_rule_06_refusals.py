"""Rule 6, and adoption: a refused delivery changes nothing and is counted once; an unknown message becomes a task."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from argus_celery import signals
from argus_celery.flow.claim import adopt, claim, refuse_stale
from argus_celery.flow.complete import complete
from argus_celery.flow.steer import pause
from argus_celery.records import QUEUE, Delivery, Outcome, TaskState
from argus_celery.store.schema import metadata
from tests.flow.conftest import FlowBench
from tests.store.bench import counted, new_task


def everything(bench: FlowBench) -> list[Any]:
    def read(connection: sa.Connection) -> list[Any]:
        return [sorted(connection.execute(sa.select(table)).all(), key=repr) for table in metadata.sorted_tables]

    return bench.store.transaction(read)


def test_a_refused_delivery_changes_no_row_costs_one_statement_and_is_told_once(bench: FlowBench) -> None:
    running, ended = bench.running(), bench.running()
    complete(bench.rt, ended, Outcome(TaskState.SUCCEEDED))
    stale = [Delivery(running.task_id, 1), Delivery(ended.task_id, 1), Delivery("never heard of", 1)]
    before, told = everything(bench), []
    signals.delivery_refused.connect(lambda task_id, token, **_: told.append((task_id, token)), weak=False)
    try:
        with counted(bench.store) as count:
            assert claim(bench.rt, "w2", stale) == [None, None, None]
    finally:
        signals.delivery_refused.receivers.clear()
    assert everything(bench) == before
    assert told == [(one.task_id, one.token) for one in stale]
    assert count.transactions <= 1


def test_of_copies_in_one_batch_one_is_granted(bench: FlowBench) -> None:
    task_id = bench.enqueue()
    granted = claim(bench.rt, "w1", [Delivery(task_id, 1)] * 3)
    assert [one is not None for one in granted] == [True, False, False]


def test_a_refusal_in_a_paused_project_leaves_the_task_to_be_resumed(bench: FlowBench) -> None:
    task_id = bench.enqueue()
    pause(bench.rt, "default")
    assert bench.claim("w1", task_id) is None
    assert bench.lease(task_id).paused == 1


def test_a_message_without_a_token_is_recorded_and_then_claimed_like_any_other(bench: FlowBench) -> None:
    task = new_task()
    assert adopt(bench.rt, task) == 1
    assert (bench.lease(task.id).holder, bench.lease(task.id).token) == (QUEUE, 1)
    assert not bench.sent
    assert claim(bench.rt, "w1", [Delivery(task.id, 1)]) != [None]


def test_a_message_without_a_token_whose_id_is_known_is_refused_also_when_that_task_has_ended(
    bench: FlowBench,
) -> None:
    task = new_task()
    adopt(bench.rt, task)
    assert adopt(bench.rt, task) == 0
    (one,) = claim(bench.rt, "w1", [Delivery(task.id, 1)])
    assert one is not None
    complete(bench.rt, one, Outcome(TaskState.SUCCEEDED))
    assert adopt(bench.rt, task) == 0


def test_a_message_without_a_token_that_is_not_due_yet_waits_in_the_store(bench: FlowBench) -> None:
    assert adopt(bench.rt, new_task(delay_ms=10_000)) == 0


def test_deliveries_that_a_claim_would_refuse_are_known_before_it(bench: FlowBench) -> None:
    running, ended, waiting = bench.running(), bench.running(), bench.enqueue()
    complete(bench.rt, ended, Outcome(TaskState.SUCCEEDED))
    stale = {Delivery(running.task_id, 1), Delivery(ended.task_id, 1), Delivery(waiting, 2)}
    before = everything(bench)
    assert refuse_stale(bench.rt, [*stale, Delivery(waiting, 1)]) == stale
    assert everything(bench) == before
    assert bench.claim("w1", waiting) is not None
