"""Rule 11: every step sees its project's status. Paused: parked, claims refused. Cancelled: ended, nothing follows."""

from __future__ import annotations

import pytest

from argus_celery.errors import ProjectClosed
from argus_celery.flow.claim import adopt
from argus_celery.flow.complete import complete
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.enqueue import enqueue, record
from argus_celery.flow.lapse import lapse
from argus_celery.flow.release import release
from argus_celery.flow.retry import retry
from argus_celery.flow.steer import cancel, close, open_project, pause, resume
from argus_celery.records import Claim, Outcome, TaskState
from argus_celery.store import projects
from tests.flow.conftest import FlowBench
from tests.flow.faults import meanwhile
from tests.invariants import check_all_ended
from tests.store.bench import new_task


def test_pause_parks_what_waits_and_what_the_broker_has(bench: FlowBench) -> None:
    queued, scheduled = bench.enqueue(), bench.enqueue(delay_ms=1000)
    pause(bench.rt, "default")
    assert bench.claim("w1", queued) is None
    bench.pass_time(100)
    assert not dispatch(bench.rt).dispatched
    resume(bench.rt, "default")
    assert set(dispatch(bench.rt).dispatched) == {queued, scheduled}


def test_what_comes_into_a_paused_project_is_recorded_and_not_sent(bench: FlowBench) -> None:
    open_project(bench.rt, "default")
    pause(bench.rt, "default")
    task_id, adopted = bench.enqueue(), new_task()
    assert adopt(bench.rt, adopted) == 0
    assert bench.sent == []
    resume(bench.rt, "default")
    assert set(dispatch(bench.rt).dispatched) == {task_id, adopted.id}


def test_a_pause_keeps_the_instant_at_which_a_task_is_due(bench: FlowBench) -> None:
    task_id = bench.enqueue(delay_ms=60_000)
    due = bench.lease(task_id).eligible_at
    pause(bench.rt, "default")
    resume(bench.rt, "default")
    assert bench.lease(task_id).eligible_at == due


@pytest.mark.parametrize("how", ["complete", "retry", "release", "lapse"])
def test_a_run_under_way_at_a_pause_goes_on_and_what_it_gives_back_is_parked(bench: FlowBench, how: str) -> None:
    claim = bench.running()
    pause(bench.rt, "default")
    sent = len(bench.sent)
    follow_up = new_task(project_id=claim.project_id, inside=True)
    give_back(bench, claim, how, follow_up)
    assert len(bench.sent) == sent
    resume(bench.rt, "default")
    assert dispatch(bench.rt).dispatched == ((follow_up.id if how == "complete" else claim.task_id),)


def give_back(bench: FlowBench, claim: Claim, how: str, follow_up: object) -> None:
    if how == "complete":
        complete(bench.rt, claim, Outcome(TaskState.SUCCEEDED, continuations=(follow_up,)))  # type: ignore[arg-type]
    elif how == "retry":
        retry(bench.rt, claim, new_task(id=claim.task_id))
    elif how == "release":
        release(bench.rt, "w1", [(claim.task_id, claim.token)], "shutdown")
    else:
        lapse(bench.rt, "w1", claim.task_id, claim.token, "signal 9")


def test_cancel_ends_what_waits_and_names_what_runs(bench: FlowBench) -> None:
    queued, scheduled, running = bench.enqueue(), bench.enqueue(delay_ms=1000), bench.running("w1")
    assert cancel(bench.rt, "default") == [(running.task_id, running.token, "w1")]
    assert {bench.task(one).outcome for one in (queued, scheduled)} == {TaskState.CANCELLED}
    assert bench.claim("w2", queued) is None
    with pytest.raises(ProjectClosed):
        bench.enqueue()


def test_a_run_that_completes_after_the_cancel_keeps_its_outcome_and_nothing_follows(bench: FlowBench) -> None:
    claim = bench.running()
    cancel(bench.rt, "default")
    follow_up = new_task(project_id=claim.project_id, inside=True)
    complete(bench.rt, claim, Outcome(TaskState.SUCCEEDED, continuations=(follow_up,)))
    assert bench.task(claim.task_id).outcome == TaskState.SUCCEEDED
    assert bench.task(follow_up.id) is None
    check_all_ended(bench.store)


@pytest.mark.parametrize("how", ["retry", "release", "lapse", "nothing"])
@pytest.mark.parametrize("paused", [False, True])
def test_a_run_that_is_given_back_after_the_cancel_ends_cancelled(bench: FlowBench, how: str, paused: bool) -> None:
    claim = bench.running()
    if paused:
        pause(bench.rt, "default")
    cancel(bench.rt, "default")
    sent = len(bench.sent)
    if how == "nothing":
        bench.pass_time(7)
    else:
        give_back(bench, claim, how, None)
    if how == "retry":
        assert bench.lease(claim.task_id) is None
    dispatch(bench.rt)
    assert len(bench.sent) == sent
    assert bench.task(claim.task_id).outcome == TaskState.CANCELLED
    check_all_ended(bench.store)


def test_a_closed_project_takes_children_and_nothing_from_outside(bench: FlowBench) -> None:
    claim = bench.running()
    close(bench.rt, "default")
    with pytest.raises(ProjectClosed):
        bench.enqueue()
    child = new_task(project_id=claim.project_id, inside=True)
    assert enqueue(bench.rt, [child])[0].created


def test_an_enqueue_under_way_makes_a_pause_wait_and_its_task_is_parked(bench: FlowBench) -> None:
    bench.enqueue(delay_ms=600_000)
    project_id = open_project(bench.rt, "default")
    task = new_task(project_id=project_id)
    meanwhile(bench.store, lambda c: record(bench.rt, c, [task]), lambda: pause(bench.rt, "default"))
    assert bench.lease(task.id).paused == 1


def test_a_pause_under_way_makes_an_enqueue_wait_and_its_task_is_not_sent(bench: FlowBench) -> None:
    bench.enqueue(delay_ms=600_000)
    project_id = open_project(bench.rt, "default")

    def pausing(connection: object) -> None:
        projects.exclusive(bench.store, connection, project_id)  # type: ignore[arg-type]
        projects.pause(bench.store, connection, project_id)  # type: ignore[arg-type]

    task_id = meanwhile(bench.store, pausing, bench.enqueue)
    assert bench.sent == []
    assert bench.lease(task_id).paused == 1


def test_a_cancel_under_way_makes_an_enqueue_wait_and_refuses_it(bench: FlowBench) -> None:
    bench.enqueue(delay_ms=600_000)
    project_id = open_project(bench.rt, "default")

    def cancelling(connection: object) -> None:
        from argus_celery.records import ProjectStatus

        projects.exclusive(bench.store, connection, project_id)  # type: ignore[arg-type]
        projects.finish(bench.store, connection, project_id, ProjectStatus.CANCELLED)  # type: ignore[arg-type]

    def refused() -> bool:
        with pytest.raises(ProjectClosed):
            bench.enqueue()
        return True

    assert meanwhile(bench.store, cancelling, refused)
    cancel(bench.rt, "default")
