"""A project that is to be paused or cancelled when a task of it has failed for good, or when its deadline is over."""

from __future__ import annotations

import pytest

from argus_celery.flow import complete as completing
from argus_celery.flow.abandon import abandon
from argus_celery.flow.come_back import Knowledge
from argus_celery.flow.complete import complete
from argus_celery.flow.configure import configure
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.lapse import lapse
from argus_celery.flow.restore import sweep
from argus_celery.flow.retry import retry
from argus_celery.flow.revive import retry_failed
from argus_celery.flow.revoke import revoke
from argus_celery.flow.steer import close, locked, mark_cancelled, open_project, resume
from argus_celery.flow.unknown import hand_on
from argus_celery.records import OnFailure, Outcome, ProjectInfo, ProjectStatus, TaskState
from argus_celery.store import alarms, reports
from tests.flow.conftest import FlowBench
from tests.invariants import check_all_ended
from tests.store.bench import new_task

FAILED = Outcome(TaskState.FAILED, error="no such order")
APP = Knowledge(lambda name: None, lambda message: ())


def info(bench: FlowBench) -> ProjectInfo:
    found = reports.project_info(bench.store, "default")
    assert found is not None
    return found


def with_policy(bench: FlowBench, on_failure: OnFailure) -> None:
    project_id = open_project(bench.rt, "default")
    configure(bench.rt, "default", {"on_failure": on_failure})
    assert not standing(bench, project_id)


def standing(bench: FlowBench, project_id: int) -> list[alarms.Alarm]:
    return bench.store.statement(lambda connection: alarms.standing(connection, project_id))


def fail(bench: FlowBench, how: str) -> str:
    """A task ends for good, or only seems to; its id."""
    if how == "expired":
        task_id = bench.enqueue(expires_in_ms=1000)
        bench.pass_time(2)
        dispatch(bench.rt)
        return task_id
    if how == "nobody knew it":
        task_id = bench.enqueue()
        hand_on(bench.rt, task_id, 1, 0)
        bench.pass_time(bench.rt.settings.unknown_deadline or 0)
        dispatch(bench.rt)
        hand_on(bench.rt, task_id, bench.lease(task_id).token, 0)
        return task_id
    claim = bench.running(max_losses=1)
    if how == "failed":
        complete(bench.rt, claim, FAILED)
    elif how == "lost":
        lapse(bench.rt, "w1", claim.task_id, claim.token, "signal 9")
    elif how == "lapsed":
        bench.pass_time(7)
        dispatch(bench.rt)
    elif how == "revoked":
        revoke(bench.rt, [claim.task_id])
    elif how == "retried":
        retry(bench.rt, claim, new_task(id=claim.task_id, delay_ms=60_000))
    else:
        complete(bench.rt, claim, Outcome(TaskState.SUCCEEDED))
    return claim.task_id


@pytest.mark.parametrize("how", ["failed", "lost", "lapsed", "expired", "nobody knew it"])
def test_a_project_pauses_itself_when_a_task_fails_for_good(bench: FlowBench, how: str) -> None:
    with_policy(bench, OnFailure.PAUSE)
    waiting = bench.enqueue(delay_ms=10**9)
    failed = fail(bench, how)
    assert info(bench).paused
    outcome = bench.task(failed).outcome
    assert info(bench).reason == f"shop.charge[{failed}] has ended as {outcome}"
    assert bench.lease(waiting).paused


@pytest.mark.parametrize("how", ["succeeded", "revoked", "retried"])
def test_what_has_not_failed_for_good_is_no_reason(bench: FlowBench, how: str) -> None:
    with_policy(bench, OnFailure.PAUSE)
    fail(bench, how)
    assert not info(bench).paused


def test_a_task_that_never_came_is_no_reason_of_its_own(bench: FlowBench) -> None:
    from argus_celery.flow.retry import park

    with_policy(bench, OnFailure.PAUSE)
    claim = bench.running()
    park(bench.rt, claim, [new_task(project_id=claim.project_id, inside=True)])
    abandon(bench.rt, [claim.task_id], "its successor failed", None)
    assert not info(bench).paused


def test_a_project_cancels_itself_when_a_task_fails_for_good(bench: FlowBench) -> None:
    with_policy(bench, OnFailure.CANCEL)
    waiting = bench.enqueue(delay_ms=60_000)
    failed = fail(bench, "failed")
    assert (info(bench).status, info(bench).paused) == (ProjectStatus.CANCELLED, False)
    assert failed in str(info(bench).reason)
    assert bench.task(waiting).outcome == TaskState.CANCELLED
    check_all_ended(bench.store)


@pytest.mark.parametrize("policy", [OnFailure.PAUSE, OnFailure.CANCEL])
def test_a_sweep_does_it_if_the_process_died_after_its_commit(bench: FlowBench, policy: OnFailure) -> None:
    with_policy(bench, policy)
    bench.enqueue(delay_ms=60_000)
    claim = bench.running()
    bench.store.transaction(lambda connection: completing._write(bench.rt, connection, [(claim, FAILED)]))
    assert (info(bench).status, info(bench).paused) == (ProjectStatus.OPEN, False)
    sweep(bench.rt)
    paused = policy is OnFailure.PAUSE
    assert (info(bench).status is ProjectStatus.CANCELLED, info(bench).paused) == (not paused, paused)
    assert not sweep(bench.rt).alarmed


def test_a_project_that_paused_itself_goes_on_with_what_failed_put_back(bench: FlowBench) -> None:
    with_policy(bench, OnFailure.PAUSE)
    failed = fail(bench, "failed")
    bench.history.revived.add(failed)
    assert retry_failed(bench.rt, "default", APP) == [failed]
    assert info(bench).paused
    resume(bench.rt, "default")
    dispatch(bench.rt)
    assert (info(bench).paused, info(bench).reason) == (False, None)
    claim = bench.claim("w2", failed)
    assert claim is not None
    complete(bench.rt, claim, FAILED)
    assert info(bench).paused


def test_what_failed_before_a_resume_pauses_nothing_any_more(bench: FlowBench) -> None:
    with_policy(bench, OnFailure.PAUSE)
    claim = bench.running()
    bench.store.transaction(lambda connection: completing._write(bench.rt, connection, [(claim, FAILED)]))
    resume(bench.rt, "default")
    sweep(bench.rt)
    assert not info(bench).paused


def test_a_closed_project_whose_last_task_fails_has_failed(bench: FlowBench) -> None:
    with_policy(bench, OnFailure.CANCEL)
    claim = bench.running()
    close(bench.rt, "default")
    complete(bench.rt, claim, FAILED)
    sweep(bench.rt)
    assert info(bench).status is ProjectStatus.FAILED


def test_a_project_is_cancelled_when_its_deadline_is_over(bench: FlowBench) -> None:
    open_project(bench.rt, "default", {"deadline_in": 60_000})
    waiting, run = bench.enqueue(delay_ms=90_000), bench.running()
    assert not sweep(bench.rt).alarmed
    assert info(bench).status is ProjectStatus.OPEN
    bench.pass_time(60)
    sweep(bench.rt)
    assert info(bench).status is ProjectStatus.CANCELLED
    assert str(info(bench).reason).startswith("its deadline, 2")
    assert bench.task(waiting).outcome == TaskState.CANCELLED
    assert bench.task(run.task_id).outcome == TaskState.CANCELLED
    assert not sweep(bench.rt).alarmed


def test_a_deadline_changes_nothing_of_what_has_ended(bench: FlowBench) -> None:
    open_project(bench.rt, "default", {"deadline_in": 60_000})
    close(bench.rt, "default")
    bench.pass_time(61)
    assert not sweep(bench.rt).alarmed
    assert info(bench).status is ProjectStatus.COMPLETED


def test_a_sweep_ends_what_waits_of_a_project_that_was_cancelled_by_a_process_that_died(bench: FlowBench) -> None:
    far = bench.enqueue(delay_ms=10**9)
    locked(bench.rt, "default", lambda connection, project: mark_cancelled(bench.rt, connection, project, "a mistake"))
    assert bench.lease(far) is not None
    sweep(bench.rt)
    assert bench.task(far).outcome == TaskState.CANCELLED
    assert info(bench).reason == "a mistake"
    assert not sweep(bench.rt).alarmed
