"""Rule 12's slow sweep: what a row says of its project is derived anew, whatever made the two disagree."""

from __future__ import annotations

import time

import pytest
import sqlalchemy as sa

from argus_celery.flow.complete import complete
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.mend import mend
from argus_celery.flow.steer import close, pause, resume
from argus_celery.hooks.errands import Errands
from argus_celery.hooks.loop import Loop
from argus_celery.records import HolderFacts, Outcome, ProjectStatus, TaskState
from argus_celery.store import projects
from argus_celery.store.schema import leases
from argus_celery.store.schema import projects as projects_table
from tests.flow.conftest import FlowBench
from tests.flow.faults import meanwhile
from tests.store.bench import counted, fill


def say_parked(bench: FlowBench, paused: int, *ids: str) -> None:
    """As an old version, or a crash in the middle, may have left the rows."""
    change = sa.update(leases).where(leases.c.task_id.in_(ids)).values(paused=paused)
    bench.store.transaction(lambda connection: connection.execute(change))


def test_a_row_that_nothing_would_resume_is_due_again(bench: FlowBench) -> None:
    queued, waiting, other = bench.enqueue(), bench.enqueue(delay_ms=1), bench.enqueue(project="other")
    pause(bench.rt, "other")
    say_parked(bench, 1, waiting, queued)
    bench.pass_time(100)
    assert dispatch(bench.rt).dispatched == (queued,), "what somebody holds lapses all the same"
    assert mend(bench.rt) == 2
    assert set(dispatch(bench.rt).dispatched) == {waiting, queued}
    assert bench.lease(other).paused == 1
    assert mend(bench.rt) == 0


def test_a_row_that_a_pause_has_missed_is_parked(bench: FlowBench) -> None:
    queued, scheduled = bench.enqueue(), bench.enqueue(delay_ms=600_000)
    due = bench.lease(scheduled).eligible_at
    pause(bench.rt, "default")
    say_parked(bench, 0, queued, scheduled)
    assert mend(bench.rt) == 2
    assert (bench.lease(queued).paused, bench.lease(scheduled).paused) == (1, 1)
    assert bench.lease(scheduled).eligible_at == due
    resume(bench.rt, "default")
    assert dispatch(bench.rt).dispatched == (queued,)


def test_a_parked_row_of_a_cancelled_project_comes_to_its_end(bench: FlowBench) -> None:
    task_id = bench.enqueue(delay_ms=1)
    change = sa.update(projects_table).values(status=ProjectStatus.CANCELLED)
    bench.store.transaction(lambda connection: connection.execute(change))
    say_parked(bench, 1, task_id)
    bench.pass_time(7)
    assert dispatch(bench.rt).ended == ()
    mend(bench.rt)
    assert dispatch(bench.rt).ended == (task_id,)
    assert bench.task(task_id).outcome == TaskState.CANCELLED


def test_a_pause_under_way_is_no_disagreement(bench: FlowBench) -> None:
    task_id = bench.enqueue()
    project_id = bench.lease(task_id).project_id
    say_parked(bench, 1, task_id)

    def pausing(connection: sa.Connection) -> None:
        projects.exclusive(bench.store, connection, project_id)
        projects.pause(bench.store, connection, project_id)

    assert meanwhile(bench.store, pausing, lambda: mend(bench.rt)) == 0
    assert bench.lease(task_id).paused == 1


@pytest.mark.parametrize("rows", [0, 3_000])
def test_what_it_costs_follows_the_projects_and_not_their_rows(bench: FlowBench, rows: int) -> None:
    claim = bench.running()
    complete(bench.rt, claim, Outcome(TaskState.SUCCEEDED))
    fill(bench.store, finished=0, scheduled=rows)
    try:
        with counted(bench.store) as count:
            assert mend(bench.rt) == 0
        assert (count.statements, count.transactions) == (4, 0)
    finally:
        clear = sa.delete(leases).where(leases.c.task_id.like("far-%"))
        bench.store.transaction(lambda connection: connection.execute(clear))


def test_a_worker_mends_at_its_boot_and_goes_on_while_there_is_something_to_mend(bench: FlowBench) -> None:
    ids = [bench.enqueue(delay_ms=600_000) for _ in range(3)]
    say_parked(bench, 1, *ids)
    loop = Loop(bench.rt, HolderFacts("w9", "celery@w9", "host", 1, "boot", "ns", "start"), Errands(), lambda: None)
    loop.run_once()
    assert [bench.lease(task_id).paused for task_id in ids] == [0, 0, 0]
    say_parked(bench, 1, ids[0])
    loop.run_once()
    assert bench.lease(ids[0]).paused == 0
    loop.run_once()
    say_parked(bench, 1, ids[0])
    loop.run_once()
    assert bench.lease(ids[0]).paused == 1, "the next time is a minute later"
    mend(bench.rt)


def test_a_sweep_that_takes_long_comes_more_rarely(bench: FlowBench, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []
    monkeypatch.setattr("argus_celery.hooks.loop.mend", lambda rt: looks.append(1) or time.sleep(0.05))
    monkeypatch.setattr("argus_celery.hooks.loop.MEND_INTERVAL", 0)
    loop = Loop(bench.rt, HolderFacts("w9", "celery@w9", "host", 1, "boot", "ns", "start"), Errands(), lambda: None)
    monkeypatch.setattr("argus_celery.hooks.loop.MEND_REST", 0)
    loop.run_once()
    loop.run_once()
    assert len(looks) == 2
    monkeypatch.setattr("argus_celery.hooks.loop.MEND_REST", 10_000)
    loop.run_once()
    loop.run_once()
    assert len(looks) == 3


def test_an_ended_project_is_left_alone(bench: FlowBench) -> None:
    claim = bench.running()
    complete(bench.rt, claim, Outcome(TaskState.SUCCEEDED))
    pause(bench.rt, "default")
    close(bench.rt, "default")
    assert mend(bench.rt) == 0
