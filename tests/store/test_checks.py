"""What no store can hold, or not every store tells apart, is refused before anything is written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from argus_celery.errors import BadTask, PayloadTooLarge, TaskNotFound
from argus_celery.flow.enqueue import adopt, enqueue
from argus_celery.flow.forget import forget
from argus_celery.flow.keep import PROJECT, keep
from argus_celery.flow.revive import Knowledge, retry
from argus_celery.records import TaskState
from argus_celery.store import groups, reports, results
from tests.store.bench import Bench, new_task

BAD_NAMES = ["", "x" * 256, "nul\0", "lone \ud800 surrogate", "blank at the end ", 5, ("a",)]


@pytest.mark.parametrize("value", BAD_NAMES)
@pytest.mark.parametrize("field", ["id", "key", "project", "root_id", "parent_id", "group_id", "name"])
def test_a_name_that_not_every_store_holds_is_refused(sqlite_bench: Bench, field: str, value: Any) -> None:
    task = replace(new_task(), **{field: value})
    for call in (lambda: enqueue(sqlite_bench.rt, [task]), lambda: adopt(sqlite_bench.rt, task)):
        with pytest.raises(BadTask, match=r"text|character|blank"):
            call()
    assert reports.all_projects(sqlite_bench.store) == []


@pytest.mark.parametrize("value", BAD_NAMES)
def test_an_id_that_no_store_holds_is_unknown_to_whoever_asks_for_it(bench: Bench, value: Any) -> None:
    task = bench.enqueue()
    assert set(results.read(bench.store, [value, task])) == {task}
    assert results.read_ended(bench.store, [value]) == {}
    assert reports.task_info(bench.store, value) is None
    assert reports.project_info(bench.store, value) is None
    assert groups.read(bench.store, value) is None
    groups.delete(bench.store, value)
    forget(bench.rt, [value])
    with pytest.raises(TaskNotFound):
        retry(bench.rt, "default", value, Knowledge(lambda name: None, lambda message: ()))


@pytest.mark.parametrize("value", BAD_NAMES)
def test_a_result_under_an_id_that_no_store_holds_is_refused_unless_its_task_never_comes(
    bench: Bench, value: Any
) -> None:
    with pytest.raises(BadTask, match="task id"):
        keep(bench.rt, value, "t", TaskState.SUCCEEDED, b"{}")
    keep(bench.rt, value, "t", TaskState.FAILED, b"{}", abandoned=True)
    assert reports.project_tasks(bench.store, PROJECT) == []


@pytest.mark.parametrize("priority", [2**40, float("nan"), None, "high"])
def test_a_priority_that_is_no_whole_number_is_refused(sqlite_bench: Bench, priority: Any) -> None:
    with pytest.raises(BadTask, match="priority"):
        enqueue(sqlite_bench.rt, [new_task(priority=priority)])


def test_arguments_above_the_limit_are_refused_with_the_settings_name(sqlite_bench: Bench) -> None:
    with pytest.raises(PayloadTooLarge, match="argus_max_payload"):
        enqueue(sqlite_bench.rt, [new_task(body=b"x" * (1024 * 1024 + 1))])


@pytest.mark.parametrize("name", ["x" * 255, "emoji 🎉 and 'quotes'", "new\nline", " blank before"])
def test_odd_names_that_every_store_holds_are_kept_as_they_are(bench: Bench, name: str) -> None:
    task = bench.enqueue(key=name, project=name)
    info = reports.task_info(bench.store, task)
    assert info is not None
    assert (info.key, info.project) == (name, name)
    assert enqueue(bench.rt, [new_task(key=name, project=name)])[0].task_id == task
