"""Rule 12: no lost wake-up. A closed project completes when it has no lease, seen under its exclusive lock."""

from __future__ import annotations

from argus_celery.flow import deliver
from argus_celery.flow.complete import complete
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.enqueue import record
from argus_celery.flow.restore import sweep
from argus_celery.flow.steer import close, complete_drained, open_project, try_complete
from argus_celery.records import Outcome, ProjectStatus, TaskState
from argus_celery.store import reports
from tests.flow.conftest import FlowBench
from tests.flow.faults import meanwhile
from tests.store.bench import new_task


def status(bench: FlowBench, name: str = "default") -> ProjectStatus:
    info = reports.project_info(bench.store, name)
    assert info is not None
    return info.status


def test_a_closed_project_completes_with_its_last_task_and_an_open_one_stays(bench: FlowBench) -> None:
    first, second, elsewhere = bench.running(), bench.running(), bench.running(project="open")
    close(bench.rt, "default")
    for claim in (first, second, elsewhere):
        assert status(bench) is ProjectStatus.CLOSED
        complete(bench.rt, claim, Outcome(TaskState.SUCCEEDED))
        sweep(bench.rt)
        if claim is second:
            break
    assert status(bench) is ProjectStatus.COMPLETED
    complete(bench.rt, elsewhere, Outcome(TaskState.SUCCEEDED))
    sweep(bench.rt)
    assert status(bench, "open") is ProjectStatus.OPEN


def test_a_project_that_has_drained_when_it_is_closed_completes_at_once(bench: FlowBench) -> None:
    open_project(bench.rt, "default")
    close(bench.rt, "default")
    assert status(bench) is ProjectStatus.COMPLETED


def test_a_project_with_a_failed_or_dead_task_ends_failed(bench: FlowBench) -> None:
    failing = bench.running()
    bench.running(project="deadly", max_losses=1)
    complete(bench.rt, failing, Outcome(TaskState.FAILED, error="broke"))
    for name in ("default", "deadly"):
        close(bench.rt, name)
    bench.pass_time(7)
    dispatch(bench.rt)
    for debt in deliver.pending(bench.rt):
        deliver.done(bench.rt, debt.task_id, debt.token)
    sweep(bench.rt)
    assert (status(bench), status(bench, "deadly")) == (ProjectStatus.FAILED, ProjectStatus.FAILED)


def test_a_closed_project_waits_for_the_errbacks_of_its_dead_letters(bench: FlowBench) -> None:
    claim = bench.running(max_losses=1)
    close(bench.rt, "default")
    bench.pass_time(7)
    sweep(bench.rt)
    assert status(bench) is ProjectStatus.CLOSED
    errback = new_task("shop.errback", project_id=claim.project_id, inside=True)
    [debt] = deliver.pending(bench.rt)
    assert deliver.done(bench.rt, debt.task_id, debt.token, [errback])
    sweep(bench.rt)
    assert status(bench) is ProjectStatus.CLOSED
    last = bench.claim("w2", errback.id)
    assert last is not None
    complete(bench.rt, last, Outcome(TaskState.SUCCEEDED))
    sweep(bench.rt)
    assert status(bench) is ProjectStatus.FAILED


def test_the_completion_waits_for_a_child_that_is_being_recorded(bench: FlowBench) -> None:
    claim = bench.running()
    close(bench.rt, "default")
    complete(bench.rt, claim, Outcome(TaskState.SUCCEEDED))
    child = new_task(project_id=claim.project_id, inside=True)
    completed = meanwhile(
        bench.store, lambda c: record(bench.rt, c, [child]), lambda: try_complete(bench.rt, "default")
    )
    assert not completed
    assert status(bench) is ProjectStatus.CLOSED
    bench.pass_time(3.1)
    dispatch(bench.rt)
    last = bench.claim("w2", child.id)
    assert last is not None
    complete(bench.rt, last, Outcome(TaskState.SUCCEEDED))
    assert complete_drained(bench.rt) == ["default"]


def test_two_sweeps_complete_a_project_once(bench: FlowBench, other: FlowBench) -> None:
    claim = bench.running()
    close(bench.rt, "default")
    complete(bench.rt, claim, Outcome(TaskState.SUCCEEDED))
    assert complete_drained(bench.rt) == ["default"]
    assert complete_drained(other.rt) == []
