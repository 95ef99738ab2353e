"""Keys: one task in a project for as long as its row is kept, and what another call under a known key leads to."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from argus_celery.errors import BadTask, KeyConflict
from argus_celery.flow.complete import complete
from argus_celery.flow.enqueue import enqueue
from argus_celery.records import Outcome, TaskState
from tests.flow.conftest import FlowBench
from tests.flow.test_rule_06_refusals import everything
from tests.store.bench import new_task

DONE = Outcome(TaskState.SUCCEEDED, b"{}")


def _order(body: bytes = b"[[18], {}, {}]", **more: Any) -> Any:
    return new_task(key="order-18", body=body, **{"key_conflict": "error", **more})


def test_a_key_leads_to_its_task_also_when_that_has_ended(bench: FlowBench) -> None:
    claim = bench.running(key="order-18")
    complete(bench.rt, claim, DONE)
    assert [one.task_id for one in enqueue(bench.rt, [_order(b"[[], {}, {}]")])] == [claim.task_id]


def test_a_key_with_other_arguments_is_an_error_where_that_is_asked_for(bench: FlowBench) -> None:
    first = enqueue(bench.rt, [_order(project="import")])[0]
    before = everything(bench)
    other = _order(b"[[19], {}, {}]", project="import")
    with pytest.raises(KeyConflict) as told:
        enqueue(bench.rt, [new_task(project="import"), other, new_task(project="import")])
    assert everything(bench) == before
    assert all(one in str(told.value) for one in ("'import'", "'order-18'", first.task_id, other.id, "shop.charge"))
    with pytest.raises(KeyConflict):
        enqueue(bench.rt, [_order(name="shop.refund", project="import")])
    assert enqueue(bench.rt, [_order(project="import"), replace(other, key_conflict="first")])[1] == (
        replace(first, created=False, token=0, differs=True)
    )


def test_two_of_one_batch_that_differ_under_one_key_are_an_error(bench: FlowBench) -> None:
    assert not enqueue(bench.rt, [_order(project="a"), _order(project="a")])[1].differs
    with pytest.raises(KeyConflict):
        enqueue(bench.rt, [_order(project="b"), _order(b"[[19], {}, {}]", project="b")])


def test_of_two_rivals_with_other_arguments_one_is_told(bench: FlowBench, other: FlowBench) -> None:
    enqueue(bench.rt, [new_task()])

    def call(one: FlowBench, number: int) -> Any:
        try:
            return enqueue(one.rt, [_order(f"[[{number}], {{}}, {{}}]".encode())])[0].created
        except KeyConflict:
            return "told"

    with ThreadPoolExecutor(2) as threads:
        results = [thread.result() for thread in (threads.submit(call, bench, 1), threads.submit(call, other, 2))]
    assert set(results) == {True, "told"}


def test_a_continuation_that_meets_a_known_key_fails_no_run(bench: FlowBench) -> None:
    enqueue(bench.rt, [_order()])
    claim = bench.running()
    following = _order(b"[[19], {}, {}]", project_id=claim.project_id, inside=True)
    assert complete(bench.rt, claim, replace(DONE, continuations=(following,))).ours
    assert bench.task(claim.task_id).outcome == TaskState.SUCCEEDED


def test_an_unknown_choice_is_refused_before_anything_is_written(bench: FlowBench) -> None:
    with pytest.raises(BadTask, match=r"argus_key_conflict of shop\.charge.* must be one of"):
        enqueue(bench.rt, [_order(key_conflict="eror")])
