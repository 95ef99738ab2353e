"""What a project is given: checked before anything is written, kept, shown, and changed by ``configure``."""

from __future__ import annotations

import time
from typing import Any

import pytest

from argus_celery.errors import BadOption, ProjectNotFound
from argus_celery.flow.complete import complete
from argus_celery.flow.configure import Instant, checked, configure, differing
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.steer import cancel, close, open_project, pause, reopen, resume
from argus_celery.records import OnFailure, Outcome, ProjectInfo, ProjectStatus, TaskState
from argus_celery.store import reports
from tests.flow.conftest import FlowBench
from tests.store.bench import new_task

GIVEN: dict[str, Any] = {"on_failure": "pause", "deadline": 60, "priority": 4, "weight": 3, "meta": {"by": "müller"}}


def info(bench: FlowBench, name: str = "default") -> ProjectInfo:
    found = reports.project_info(bench.store, name)
    assert found is not None
    return found


def test_a_project_keeps_and_shows_what_it_was_given(bench: FlowBench) -> None:
    values = checked(bench.rt, "p", GIVEN)
    open_project(bench.rt, "p", values)
    made = info(bench, "p")
    assert (made.on_failure, made.priority, made.weight) == (OnFailure.PAUSE, 4, 3)
    assert made.meta == {"by": "müller"}
    assert made.deadline_at is not None
    assert abs(made.deadline_at - made.created_at - 60_000) < 1000
    assert differing(bench.rt, "p", values) == []
    assert differing(bench.rt, "p", checked(bench.rt, "p", {"weight": 3, "deadline": 90, "priority": 0})) == [
        "deadline",
        "priority",
    ]


def test_what_configure_does_not_name_stays_and_none_is_the_default_again(bench: FlowBench) -> None:
    open_project(bench.rt, "p", checked(bench.rt, "p", GIVEN))
    configure(bench.rt, "p", checked(bench.rt, "p", {"deadline": Instant(2**42), "on_failure": None}))
    now = info(bench, "p")
    assert (now.on_failure, now.deadline_at, now.priority, now.weight) == (OnFailure.CONTINUE, 2**42, 4, 3)
    configure(bench.rt, "p", checked(bench.rt, "p", dict.fromkeys(GIVEN)))
    now = info(bench, "p")
    assert (now.deadline_at, now.priority, now.weight, now.meta) == (None, 0, 1, {})
    with pytest.raises(ProjectNotFound, match="'q'"):
        configure(bench.rt, "q", {})


def test_a_task_whose_call_names_no_priority_has_its_projects(bench: FlowBench) -> None:
    project_id = open_project(bench.rt, "p", {"priority": 7})
    late = bench.enqueue(project="p", delay_ms=1000)
    urgent = bench.enqueue(project="p", priority=9, ranked=True, delay_ms=1000)
    bench.pass_time(2)
    assert dispatch(bench.rt).dispatched == (urgent, late)
    assert bench.sent[-1].message.properties["priority"] == 7
    claim = bench.claim("w1", late)
    assert claim is not None
    configure(bench.rt, "p", {"priority": 5})
    child = new_task(project_id=project_id, inside=True)
    complete(bench.rt, claim, Outcome(TaskState.SUCCEEDED, continuations=(child,)))
    assert (bench.task(child.id).priority, bench.sent[-1].message.properties["priority"]) == (5, 5)


def test_a_priority_is_handed_out_in_the_order_of_the_broker(bench: FlowBench) -> None:
    object.__setattr__(bench.rt, "urgency", lambda priority: -priority)
    open_project(bench.rt, "p", {"priority": 7})
    assert bench.task(bench.enqueue(project="p")).priority == -7


def test_a_reopened_project_takes_tasks_and_completes_once_more(bench: FlowBench) -> None:
    complete(bench.rt, bench.running(), Outcome(TaskState.SUCCEEDED))
    close(bench.rt, "default")
    assert info(bench).status is ProjectStatus.COMPLETED
    reopen(bench.rt, "default")
    reopen(bench.rt, "default")
    assert (info(bench).status, info(bench).closed_at, info(bench).finished_at) == (ProjectStatus.OPEN, None, None)
    complete(bench.rt, bench.running(), Outcome(TaskState.FAILED))
    close(bench.rt, "default")
    assert info(bench).status is ProjectStatus.FAILED


def test_a_deadline_that_is_over_is_refused_by_the_clock_of_the_store(bench: FlowBench) -> None:
    bench.pass_time(3_600)
    soon = Instant((time.time() + 1_800) * 1000)  # by the clock of this host
    with pytest.raises(BadOption, match=r"the deadline of project 'p', .*, is over by the store's clock"):
        open_project(bench.rt, "p", checked(bench.rt, "p", {"deadline": soon}))
    assert reports.project_info(bench.store, "p") is None
    open_project(bench.rt, "p", checked(bench.rt, "p", {"deadline": 5, "weight": 2}))
    with pytest.raises(BadOption, match="is over by the store's clock"):
        configure(bench.rt, "p", checked(bench.rt, "p", {"deadline": soon, "weight": 3}))
    assert reports.project_info(bench.store, "p").weight == 2  # type: ignore[union-attr]
    bench.pass_time(6)
    open_project(bench.rt, "p", checked(bench.rt, "p", {"deadline": soon}))  # one that is there is only found


def test_what_was_cancelled_stays_so_when_its_project_is_reopened(bench: FlowBench) -> None:
    waiting, run = bench.enqueue(delay_ms=1000), bench.running()
    pause(bench.rt, "default")
    cancel(bench.rt, "default")
    configure(bench.rt, "default", {"deadline_in": 1_000})
    bench.pass_time(2)
    reopen(bench.rt, "default")
    assert {bench.task(one).outcome for one in (waiting, run.task_id)} == {TaskState.CANCELLED}
    assert info(bench).deadline_at is None
    resume(bench.rt, "default")
    assert bench.claim("w1", bench.enqueue()) is not None


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"on_failure": "stop"}, r"on_failure of project 'p' cannot be 'stop'"),
        ({"on_failure": "cancle"}, "Did you mean cancel"),
        ({"on_failure": ""}, "cannot be ''"),
        ({"priority": ""}, "whole number"),
        ({"deadline": 0}, "above 0 seconds"),
        ({"deadline": 1e30}, "deadline of project 'p' must be at most 3162240000 seconds"),
        ({"deadline": 10**400}, "deadline of project 'p' must be at most 3162240000 seconds"),
        ({"deadline": True}, "deadline of project 'p' must be a finite number of seconds"),
        ({"deadline": float("nan")}, "deadline of project 'p' must be a finite number of seconds"),
        ({"deadline": "tomorrow"}, "deadline of project 'p' must be a finite number of seconds"),
        ({"priority": 300}, "from 0 to 255"),
        ({"weight": 0}, r"weight of project 'p' must be a whole number from 1"),
        ({"weight": 1.5}, "whole number"),
        ({"meta": {"at": object()}}, "what JSON holds"),
        ({"meta": {1: 2}}, "texts as keys"),
        ({"meta": {"much": "x" * 2**20}}, "argus_max_payload"),
        ({"dedline": 5}, "no option 'dedline'. Did you mean deadline"),
    ],
)
def test_what_cannot_work_is_refused_by_name_before_anything_is_written(
    sqlite_store_url: str, given: dict[str, Any], error: str
) -> None:
    from argus_celery.store.engine import Store
    from tests.store.bench import Bench

    bench = Bench(Store(sqlite_store_url, app_name="tests"))
    with pytest.raises(BadOption, match=error):
        checked(bench.rt, "p", given)
