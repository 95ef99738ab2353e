"""Restart: a task that has ended runs once more with what follows it, above its fence; what else is done is kept."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from argus_celery.errors import LeaseLost, NotRetriable, ProjectClosed, TaskNotFound
from argus_celery.flow.come_back import Knowledge
from argus_celery.flow.complete import complete
from argus_celery.flow.restart import restart
from argus_celery.flow.revive import Which, retry_failed
from argus_celery.flow.revoke import revoke
from argus_celery.flow.steer import cancel
from argus_celery.records import Claim, NewTask, Outcome, TaskState
from argus_celery.store.schema import steps
from tests.flow.conftest import FlowBench
from tests.invariants import check_all_ended
from tests.store.bench import new_task

FAILED = Outcome(TaskState.FAILED, error="broke")
CHAIN = {"a": "b", "b": "c"}
APP = Knowledge(lambda name: None, lambda message: [CHAIN[id_]] if (id_ := message.headers["id"]) in CHAIN else [])


def run(bench: FlowBench, task_id: str, how: Outcome | None = None) -> Claim:
    """Run it; its next in the chain is recorded by its completion."""
    claim = bench.claim("w1", task_id)
    assert claim is not None
    follow: tuple[NewTask, ...] = ()
    if how is None and task_id in CHAIN:
        follow = (new_task(id=CHAIN[task_id], project_id=claim.project_id, inside=True),)
    complete(bench.rt, claim, how or Outcome(TaskState.SUCCEEDED, b"done", continuations=follow))
    return claim


def again(bench: FlowBench, task_id: str) -> list[str]:
    bench.history.check()
    ids = restart(bench.rt, "default", task_id, APP)
    bench.history.restarted.update(ids)
    return ids


def outcomes(bench: FlowBench, *ids: str) -> list[Any]:
    return [bench.task(one).outcome for one in ids]


def test_a_task_that_succeeded_runs_again_with_the_rest_of_its_chain(bench: FlowBench) -> None:
    beside = bench.running().task_id
    bench.enqueue(id="a")
    first = [run(bench, one).token for one in "abc"]
    assert again(bench, "a") == ["a", "b", "c"]
    assert outcomes(bench, "a", "b", "c") == [None, TaskState.FAILED, TaskState.FAILED]
    assert bench.task("b").result is None and "was restarted" in bench.task("b").error
    assert bench.lease(beside) is not None
    second = [run(bench, one).token for one in "abc"]
    assert all(old < new for old, new in zip(first, second, strict=True))
    assert outcomes(bench, "a", "b", "c") == [TaskState.SUCCEEDED] * 3
    assert bench.task("c").attempts == 2


def test_what_follows_and_is_alive_ends_and_its_run_can_write_nothing(bench: FlowBench) -> None:
    rung: list[bool] = []
    object.__setattr__(bench.rt, "ring", lambda: rung.append(True))
    bench.enqueue(id="a")
    run(bench, "a")
    running = bench.claim("w1", "b")
    assert running is not None
    again(bench, "a")
    assert rung
    with pytest.raises(LeaseLost):
        complete(bench.rt, running, Outcome(TaskState.SUCCEEDED))
    for one in "abc":
        run(bench, one)
    check_all_ended(bench.store, restarted=bench.history.restarted)


def test_a_middle_of_a_chain_that_failed_keeps_what_is_before_it(bench: FlowBench) -> None:
    bench.enqueue(id="a")
    run(bench, "a")
    run(bench, "b", FAILED)
    assert again(bench, "b") == ["b"]
    assert bench.task("a").outcome == TaskState.SUCCEEDED
    run(bench, "b")
    run(bench, "c")
    assert bench.task("a").attempts == 1


def test_what_comes_after_it_waits_for_it_once_more(bench: FlowBench) -> None:
    top = bench.enqueue()
    child = bench.enqueue(after=(top,))
    in_any_case = bench.enqueue(after=(top,), regardless=True)
    below = bench.enqueue(after=(child,))
    for one in (top, child, in_any_case, below):
        run(bench, one)
    assert set(again(bench, top)) == {top, child, in_any_case, below}
    assert [bench.lease(one).waits for one in (top, child, in_any_case, below)] == [0, 1, 1, 1]
    for one in (top, child, in_any_case, below):
        run(bench, one)
    check_all_ended(bench.store, restarted=bench.history.restarted)
    assert outcomes(bench, child, below) == [TaskState.SUCCEEDED] * 2


def test_what_was_revoked_stays_so(bench: FlowBench) -> None:
    top = bench.enqueue()
    child = bench.enqueue(after=(top,))
    run(bench, top)
    revoke(bench.rt, [child])
    again(bench, top)
    assert bench.task(child).outcome == TaskState.CANCELLED


def test_the_steps_of_what_runs_again_are_forgotten(bench: FlowBench) -> None:
    top, beside = bench.enqueue(), bench.enqueue()
    rows = [{"task_id": one, "name": "fetch", "token": 1, "finished_at": 1} for one in (top, beside)]
    bench.store.transaction(lambda connection: connection.execute(sa.insert(steps), rows))
    run(bench, top)
    again(bench, top)
    assert bench.store.statement(lambda c: list(c.execute(sa.select(steps.c.task_id)).scalars())) == [beside]


def test_what_cannot_be_restarted_is_refused_with_the_reason(bench: FlowBench) -> None:
    alive, gone, done = bench.enqueue(), bench.enqueue(), bench.enqueue()
    revoke(bench.rt, [gone])
    run(bench, done)
    for task_id, error, sentence in (
        (alive, NotRetriable, "is alive"),
        (gone, NotRetriable, "was revoked"),
        ("nobody", TaskNotFound, "has no task 'nobody'"),
        ("\x00", TaskNotFound, "has no task"),
    ):
        with pytest.raises(error, match=sentence):
            restart(bench.rt, "default", task_id, APP)
    cancel(bench.rt, "default")
    with pytest.raises(ProjectClosed, match="reopen it first"):
        restart(bench.rt, "default", done, APP)
    assert bench.task(done).outcome == TaskState.SUCCEEDED


# --- a choice of what is retried ---------------------------------------------------------------------------------


def test_what_failed_is_put_back_by_state_name_or_id(bench: FlowBench) -> None:
    from argus_celery.flow.lapse import lapse

    failed, other = bench.running().task_id, bench.running(name="mail.send").task_id
    for one in (failed, other):
        run_of = bench.lease(one)
        complete(bench.rt, Claim(one, run_of.token, "w1", run_of.project_id, 1, 0.0), FAILED)
    dead = bench.running(max_losses=1)
    lapse(bench.rt, "w1", dead.task_id, dead.token, "signal 9")
    bench.history.revived.update((failed, other, dead.task_id))
    bench.history.check()
    for nothing in (Which((TaskState.EXPIRED,)), Which(name="shop.refund")):
        with pytest.raises(TaskNotFound, match="nothing is put back"):
            retry_failed(bench.rt, "default", APP, nothing)
    with pytest.raises(TaskNotFound, match=r"Did you mean mail\.send"):
        retry_failed(bench.rt, "default", APP, Which(name="mail.sent"))
    with pytest.raises(TaskNotFound, match="has no task 'x'"):
        retry_failed(bench.rt, "default", APP, Which(ids=frozenset({failed, "x"})))
    with pytest.raises(TaskNotFound, match=r"no task of the name 'mail\.\*'"):
        retry_failed(bench.rt, "default", APP, Which(name="mail.*", ids=frozenset({failed})))
    with pytest.raises(NotRetriable, match=r"\] is failed, not dead"):
        retry_failed(bench.rt, "default", APP, Which((TaskState.DEAD,), ids=frozenset({failed})))
    assert retry_failed(bench.rt, "default", APP, Which(ids=frozenset())) == []
    assert retry_failed(bench.rt, "default", APP, Which((TaskState.DEAD,))) == [dead.task_id]
    assert retry_failed(bench.rt, "default", APP, Which(name="mail.*")) == [other]
    assert retry_failed(bench.rt, "default", APP, Which(ids=frozenset({failed, other}))) == [failed]
