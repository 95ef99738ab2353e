"""Projects that are drained by a worker in this process, on the embedded broker: no server at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from celery import chain

from argus_celery import current
from argus_celery.records import ProjectStatus, TaskState
from tests.integration.embedded import Shop, shop


@pytest.fixture
def embedded(tmp_path: Path) -> Shop:
    made = shop(f"sqlite:///{tmp_path / 'shop.db'}", f"argus://{tmp_path / 'shop.db'}")
    app, argus = made.app, made.argus

    @argus.durable
    @app.task(name="note", shared=False)
    def note(value: Any) -> Any:
        made.log.append((value, current.project))
        return value

    @argus.durable
    @app.task(name="fan_out", shared=False)
    def fan_out(count: int) -> None:
        argus.project(str(current.project)).enqueue_many(note.s(number) for number in range(count))
        note.delay("last")

    @argus.durable
    @app.task(name="fail", shared=False)
    def fail() -> None:
        raise KeyError("on purpose")

    return made


def test_a_closed_project_completes_when_it_has_drained(embedded: Shop) -> None:
    project = embedded.argus.project("import")
    results = project.enqueue_many(embedded.app.tasks["note"].s(number) for number in range(30))
    project.close()
    with embedded.worker():
        assert project.join(timeout=30) is ProjectStatus.COMPLETED
    assert [result.get(timeout=5) for result in results] == list(range(30))
    assert project.progress().counts[TaskState.SUCCEEDED] == project.progress().ended == 30


def test_an_open_project_is_joined_when_it_has_drained(embedded: Shop) -> None:
    project = embedded.argus.project("import")
    project.enqueue(embedded.app.tasks["note"].s(1))
    with embedded.worker():
        assert project.join(timeout=30) is ProjectStatus.OPEN
    assert embedded.log == [(1, "import")]


def test_children_join_their_parents_project_also_when_it_is_closed(embedded: Shop) -> None:
    project = embedded.argus.project("import")
    project.enqueue(embedded.app.tasks["fan_out"].s(3))
    project.close()
    with embedded.worker():
        assert project.join(timeout=30) is ProjectStatus.COMPLETED
    assert set(embedded.log) == {(0, "import"), (1, "import"), (2, "import"), ("last", "import")}
    assert len(embedded.log) == 4


def test_chains_and_callbacks_stay_in_their_project(embedded: Shop) -> None:
    note = embedded.app.tasks["note"]
    project = embedded.argus.project("import")
    project.enqueue_many([chain(note.s("a"), note.s()), note.s("b").on_error(note.s()), note.s("c")])
    project.enqueue(note.signature(("d",), link=note.s()))
    project.close()
    with embedded.worker():
        assert project.join(timeout=30) is ProjectStatus.COMPLETED
    assert sorted(embedded.log) == [(value, "import") for value in ("a", "a", "b", "c", "d", "d")]


def test_a_project_with_a_failed_task_has_failed(embedded: Shop) -> None:
    project = embedded.argus.project("import")
    project.enqueue_many([embedded.app.tasks["note"].s(1), embedded.app.tasks["fail"].s()])
    project.close()
    with embedded.worker():
        assert project.join(timeout=30) is ProjectStatus.FAILED
    assert project.progress().counts[TaskState.FAILED] == 1
