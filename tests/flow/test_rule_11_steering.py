"""Rule 11: every step sees its project's status. Paused: parked, claims refused. Cancelled: ended, nothing follows."""

from __future__ import annotations

import pytest

from argus_celery.errors import LeaseLost, ProjectClosed
from argus_celery.flow.claim import adopt
from argus_celery.flow.complete import complete
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.enqueue import enqueue, record
from argus_celery.flow.lapse import lapse
from argus_celery.flow.release import release
from argus_celery.flow.renew import renew
from argus_celery.flow.retry import retry
from argus_celery.flow.steer import _end_all, cancel, close, open_project, pause, reopen, resume
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


def test_a_run_under_way_at_a_cancel_is_ended_and_told_by_its_next_renewal(bench: FlowBench) -> None:
    going_on, run = bench.running("w1", project="other"), bench.running("w1")
    cancel(bench.rt, "default")
    claims = [(one.task_id, one.token) for one in (going_on, run)]
    renewal = renew(bench.rt, "w1", claims)
    assert (renewal.held, renewal.lost) == ({claims[0]}, {claims[1]})
    assert bench.task(run.task_id).outcome == TaskState.CANCELLED
    with pytest.raises(LeaseLost):
        complete(bench.rt, run, Outcome(TaskState.SUCCEEDED))
    complete(bench.rt, going_on, Outcome(TaskState.SUCCEEDED))
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


def test_a_pause_that_stops_takes_back_what_runs_and_charges_nothing(bench: FlowBench) -> None:
    rung: list[bool] = []
    object.__setattr__(bench.rt, "ring", lambda: rung.append(True))
    run, elsewhere = bench.running(max_losses=1), bench.running("w1", project="other")
    pause(bench.rt, "default", stop=True)
    assert rung == [True]
    assert renew(bench.rt, "w1", [(run.task_id, run.token)]).lost == {(run.task_id, run.token)}
    with pytest.raises(LeaseLost):
        complete(bench.rt, run, Outcome(TaskState.SUCCEEDED))
    assert bench.lease(run.task_id).holder == "" and not dispatch(bench.rt).dispatched
    pause(bench.rt, "default", stop=True)
    assert rung == [True]
    resume(bench.rt, "default")
    assert dispatch(bench.rt).dispatched == (run.task_id,)
    again = bench.claim("w2", run.task_id)
    assert again is not None and again.token > run.token
    complete(bench.rt, again, Outcome(TaskState.SUCCEEDED))
    row = bench.task(run.task_id)
    assert (row.attempts, row.losses, row.retries) == (2, 0, 0)
    complete(bench.rt, elsewhere, Outcome(TaskState.SUCCEEDED))
    check_all_ended(bench.store)


def test_a_resume_brings_work_back_in_the_order_in_which_it_came(bench: FlowBench) -> None:
    object.__setattr__(bench.rt.settings, "dispatch_window", 2)
    ids = []
    for _ in range(4):
        ids.append(bench.enqueue())
        bench.pass_time(0.01)
    claim = bench.claim("w1", ids[0])
    assert claim is not None
    pause(bench.rt, "default", stop=True)
    resume(bench.rt, "default")
    object.__setattr__(bench.rt.settings, "dispatch_window", 10)
    assert dispatch(bench.rt).dispatched == tuple(ids)


def test_a_cancel_that_meets_nothing_running_asks_nobody(bench: FlowBench) -> None:
    rung: list[bool] = []
    object.__setattr__(bench.rt, "ring", lambda: rung.append(True))
    bench.enqueue()
    cancel(bench.rt, "default")
    assert not rung
    bench.running(project="other")
    cancel(bench.rt, "other")
    assert rung == [True]


def test_a_cancel_under_way_ends_nothing_of_what_the_reopened_project_takes(bench: FlowBench) -> None:
    bench.enqueue()
    cancel(bench.rt, "default")
    reopen(bench.rt, "default")
    task_id = bench.enqueue()
    # The cancel's process was slow, and comes to its rows only now.
    _end_all(bench.rt, open_project(bench.rt, "default"))
    assert bench.claim("w1", task_id) is not None
