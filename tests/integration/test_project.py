"""Projects from the outside: enqueue one and many, keys, close, steer, watch. No worker runs here."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery, chain, group

from argus_celery import Argus
from argus_celery.errors import PayloadTooLarge, ProjectClosed, StoreUnavailable
from argus_celery.records import ProjectStatus, TaskState
from argus_celery.store import reports, setup


@pytest.fixture
def argus(store_url: str) -> Iterator[Argus]:
    app = Celery("shop", broker="memory://", backend="cache+memory://", set_as_current=False)
    argus = Argus(app, store=store_url, max_payload=10_000)

    @argus.durable
    @app.task(name="charge", shared=False)
    def charge(order: Any) -> Any:
        return order

    @app.task(name="plain", shared=False)
    def plain() -> None: ...

    setup.init(argus.runtime.store)
    yield argus
    argus.runtime.store.dispose()


@pytest.fixture
def charge(argus: Argus) -> Any:
    return argus.app.tasks["charge"]


def test_the_same_name_is_the_same_project(argus: Argus, charge: Any) -> None:
    argus.project("import").enqueue(charge.s(1))
    argus.project("import").enqueue(charge.s(2))
    assert argus.project("import").progress().total == 2


def test_a_block_lets_calls_join_and_leaves_the_project_open(argus: Argus, charge: Any) -> None:
    with argus.project("outer") as outer:
        with argus.project("inner"):
            charge.delay(1)
        with outer:
            charge.delay(2)
        charge.delay(3)
    charge.delay(4)
    assert [argus.project(name).progress().total for name in ("inner", "outer", "default")] == [1, 2, 1]
    assert outer.status is ProjectStatus.OPEN


def test_a_block_that_raises_is_left_all_the_same(argus: Argus, charge: Any) -> None:
    with pytest.raises(KeyError), argus.project("import"):
        raise KeyError
    charge.delay(1)
    assert argus.project("import").progress().total == 0


def test_a_key_leads_to_the_first_task(argus: Argus, charge: Any) -> None:
    project = argus.project("import")
    first = project.enqueue(charge.s(1), key="order-1")
    assert project.enqueue(charge.s(1), key="order-1").id == first.id
    assert project.progress().total == 1
    assert argus.project("other").enqueue(charge.s(1), key="order-1").id != first.id


def test_a_key_with_other_arguments_keeps_the_first_and_warns(
    argus: Argus, charge: Any, caplog: pytest.LogCaptureFixture
) -> None:
    project = argus.project("import")
    first = project.enqueue(charge.s(1), key="order-1")
    with caplog.at_level(logging.WARNING):
        again = project.enqueue(charge.s(2), key="order-1")
        (many,) = project.enqueue_many([charge.s(3).set(argus_key="order-1")])
    assert again.id == many.id == first.id
    assert [record.levelname for record in caplog.records if "other arguments" in record.message] == ["WARNING"] * 2


def test_many_are_enqueued_in_order_with_one_transaction_per_batch(argus: Argus, charge: Any) -> None:
    project = argus.project("import")
    begun: list[Any] = []
    work = argus.runtime.store.transaction
    argus.runtime.store.transaction = lambda write: (begun.append(write), work(write))[1]  # type: ignore[method-assign]
    results = project.enqueue_many(charge.s(number) for number in range(1100))
    assert len(begun) <= 3 + 1  # and one for what the window's first message asked
    ids = {task.id for task in reports.project_tasks(argus.runtime.store, "import", limit=2000)}
    assert [result.id in ids for result in results] == [True] * 1100
    assert len({result.id for result in results}) == 1100


def test_what_goes_beyond_the_window_waits_in_the_store(argus: Argus, charge: Any) -> None:
    project = argus.project("import")
    project.enqueue_many(charge.s(number) for number in range(1100))
    counts = project.progress().counts
    assert (counts[TaskState.QUEUED], counts[TaskState.WAITING]) == (1000, 100)


def test_many_may_have_keys_and_repeat_safely(argus: Argus, charge: Any) -> None:
    project = argus.project("import")
    orders = [charge.s(number).set(argus_key=f"order-{number}") for number in (1, 2, 1, 3)]
    first, again = project.enqueue_many(orders), project.enqueue_many(orders)
    assert [result.id for result in first] == [result.id for result in again]
    assert project.progress().total == 3


def test_a_canvas_joins_too(argus: Argus, charge: Any) -> None:
    project = argus.project("import")
    project.enqueue(group(charge.s(1), charge.s(2)))
    project.enqueue_many([chain(charge.s(3), charge.s()), charge.s(4)])
    assert project.progress().total == 4


def test_a_key_for_a_canvas_is_refused(argus: Argus, charge: Any) -> None:
    with pytest.raises(ValueError, match="a key names one task"):
        argus.project("import").enqueue(group(charge.s(1), charge.s(2)), key="both")


def test_a_task_that_is_not_durable_is_refused_with_the_remedy(argus: Argus) -> None:
    plain = argus.app.tasks["plain"]
    with pytest.raises(ValueError, match="@durable"):
        argus.project("import").enqueue(plain.s())
    with pytest.raises(ValueError, match="@durable"):
        argus.project("import").enqueue_many([plain.s()])


def test_a_payload_above_the_limit_enqueues_nothing_of_its_batch(argus: Argus, charge: Any) -> None:
    project = argus.project("import")
    with pytest.raises(PayloadTooLarge, match="argus_max_payload"):
        project.enqueue_many([charge.s(1), charge.s("x" * 20_000)])
    assert project.progress().total == 0


def test_a_closed_project_takes_no_more_from_outside(argus: Argus, charge: Any) -> None:
    project = argus.project("import")
    project.enqueue(charge.s(1))
    project.close()
    project.close()
    with pytest.raises(ProjectClosed, match="import"):
        project.enqueue(charge.s(2))
    with pytest.raises(ProjectClosed, match="import"):
        project.enqueue_many([charge.s(2)])
    assert (project.status, project.progress().total) == (ProjectStatus.CLOSED, 1)


def test_an_empty_project_completes_when_it_is_closed(argus: Argus) -> None:
    project = argus.project("import")
    assert project.join(timeout=1) is ProjectStatus.OPEN
    project.close()
    assert project.join(timeout=1) is ProjectStatus.COMPLETED


def test_join_gives_up_after_its_timeout(argus: Argus, charge: Any) -> None:
    project = argus.project("import")
    project.enqueue(charge.s(1))
    with pytest.raises(TimeoutError, match="'import' has not ended within 0"):
        project.join(timeout=0.05)


def test_a_cancelled_project_ends_what_waits(argus: Argus, charge: Any) -> None:
    project = argus.project("import")
    project.enqueue_many(charge.s(number) for number in range(3))
    project.cancel()
    assert project.join(timeout=1) is ProjectStatus.CANCELLED
    assert project.progress().counts[TaskState.CANCELLED] == 3


def test_a_paused_project_takes_tasks_and_hands_out_none(argus: Argus, charge: Any) -> None:
    project = argus.project("import")
    project.pause()
    project.enqueue(charge.s(1))
    assert (project.progress().paused, project.progress().counts[TaskState.WAITING]) == (True, 1)
    project.resume()
    assert not project.progress().paused


@pytest.mark.parametrize("name", ["", "x" * 256])
def test_a_name_that_cannot_be_stored_is_refused(argus: Argus, name: str) -> None:
    with pytest.raises(ValueError, match="1 to 255 characters"):
        argus.project(name)


def test_a_store_that_is_away_is_named_and_nothing_is_published() -> None:
    app = Celery("shop", broker="memory://", set_as_current=False)
    argus = Argus(app, store="postgresql+psycopg://nobody@127.0.0.1:1/none")

    @argus.durable
    @app.task(name="charge", shared=False)
    def charge(order: Any) -> None: ...

    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        charge.delay(1)
    with pytest.raises(StoreUnavailable):
        argus.project("import")


def test_the_default_project_never_ends(argus: Argus) -> None:
    project = argus.project("default")
    for end in (project.close, project.cancel):
        with pytest.raises(ProjectClosed, match="never ends"):
            end()
    assert project.status is ProjectStatus.OPEN
