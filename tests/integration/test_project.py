"""Projects from the outside: enqueue one and many, keys, close, steer, watch. No worker runs here."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from celery import Celery, chain, group

from argus_celery import Argus, Limit
from argus_celery.errors import BadOption, BadTask, KeyConflict, PayloadTooLarge, ProjectClosed, StoreUnavailable
from argus_celery.flow.dispatch import dispatch
from argus_celery.records import ProjectStatus, TaskState
from argus_celery.store import reports, setup, tasks


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


def test_options_that_differ_from_the_projects_change_nothing_and_are_warned_of(
    argus: Argus, caplog: pytest.LogCaptureFixture
) -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    project = argus.project("p", weight=2, deadline=soon, meta=None)
    argus.project("p", weight=2, deadline=soon)
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        argus.project("p", weight=3, on_failure="pause")
    assert "'p' was made with another on_failure and weight, which stands" in caplog.text
    assert (project.progress().weight, project.progress().deadline_at) == (2, round(soon.timestamp() * 1000))
    project.configure(weight=3, deadline=None)
    assert (project.progress().weight, project.progress().deadline_at) == (3, None)
    with pytest.raises(BadOption, match=r"no option 'wait'. Did you mean weight"):
        argus.project("q", wait=2)  # type: ignore[call-arg]
    assert reports.project_info(argus.runtime.store, "q") is None


@pytest.mark.parametrize("limit", [0, -1, None, "5", float("nan"), 10**30])
def test_a_page_of_a_timeline_has_a_size(argus: Argus, limit: Any) -> None:
    with pytest.raises(ValueError, match="holds 1 to 1000000 attempts"):
        argus.project("p").timeline(limit)


def test_a_priority_of_the_project_is_that_of_calls_that_name_none(argus: Argus, charge: Any) -> None:
    project = argus.project("p", priority=6)
    ids = [project.enqueue(charge.s(1)).id, project.enqueue(charge.s(2).set(priority=2)).id]
    with argus.runtime.store.engine.connect() as connection:
        stored = tasks.messages(connection, ids)
    assert [stored[id_].properties["priority"] for id_ in ids] == [6, 2]


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


def test_a_value_that_no_database_can_hold_makes_a_kind_too(argus: Argus) -> None:
    @argus.durable(unique="args.name")
    @argus.app.task(name="rebuild", shared=False)
    def rebuild(name: str) -> None: ...

    first, other = rebuild.delay("half \ud83d"), rebuild.delay("half \ude00")
    assert rebuild.delay("half \ud83d").id == first.id != other.id


def test_what_is_refused_tells_nothing_of_how_it_was_tried(argus: Argus, charge: Any) -> None:
    """A project's priority that nobody has used yet is noted first, and the enqueue repeated."""
    with pytest.raises(BadTask, match="is to come after 'nobody'") as refused:
        argus.project("urgent", priority=7).enqueue(charge.s(1), after="nobody")
    assert refused.value.__context__ is None


def test_an_empty_choice_chooses_nothing(argus: Argus, charge: Any) -> None:
    project = argus.project("p")
    assert project.enqueue_many([]) == []
    assert project.retry_failed(ids=[]) == project.retry_failed(ids=iter(()), name="*") == []
    first = project.enqueue(charge.s(1), after=[])
    project.add_after(first, [])
    assert reports.task_info(argus.runtime.store, first.id).waits_for == ()  # type: ignore[union-attr]
    for no_list in ("x", b"x", 7):
        with pytest.raises(BadOption, match="takes a list of ids or results, not"):
            project.retry_failed(ids=no_list)  # type: ignore[arg-type]


def test_of_a_unique_task_the_one_that_lives_is_what_a_call_leads_to(argus: Argus, charge: Any) -> None:
    first = charge.apply_async((1,), argus_unique="nightly")
    assert charge.apply_async((2,), argus_unique="nightly").id == first.id
    same, other = argus.project("import").enqueue_many(
        [charge.s(1).set(argus_unique=name) for name in ("nightly", "x")]
    )
    assert same.id == first.id != other.id


def test_limits_of_a_task_and_of_its_project_keep_what_is_above_them_in_the_store(argus: Argus, charge: Any) -> None:
    argus.durable(charge, limit=Limit(concurrency=2, key="args.order"))
    waiting = lambda: argus.project("import").progress().counts[TaskState.WAITING]  # noqa: E731
    project = argus.project("import", limit=Limit(concurrency=3))
    project.enqueue_many(charge.s(order) for order in (1, 1, 1, 2, 2))
    assert waiting() == 2
    project.configure(limit=None)
    dispatch(argus.runtime)
    assert waiting() == 1


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


def test_a_key_with_other_arguments_is_an_error_by_call_or_setting(argus: Argus, charge: Any) -> None:
    project = argus.project("import")
    project.enqueue(charge.s(1), key="order-1")
    with pytest.raises(KeyConflict, match=r"project 'import' has the key 'order-1' for the task .*, and charge\["):
        project.enqueue(charge.s(2), key="order-1", key_conflict="error")
    argus.app.conf.argus_key_conflict = "error"
    argus.__dict__.pop("settings"), argus.__dict__.pop("runtime")
    with pytest.raises(KeyConflict):
        project.enqueue_many([charge.s(0), charge.s(2).set(argus_key="order-1")])
    assert project.progress().total == 1
    project.enqueue(charge.s(2), key="order-1", key_conflict="first")


def test_a_keyed_start_of_a_chain_that_is_sent_again_is_no_conflict(argus: Argus, charge: Any) -> None:
    def send(order: int) -> Any:
        return chain(charge.s(order).set(argus_key="order-1", argus_key_conflict="error"), charge.si(0)).apply_async()

    send(1)
    send(1)
    with pytest.raises(KeyConflict):
        send(2)


def test_an_id_that_is_known_keeps_the_first_task_and_warns_of_the_id(
    argus: Argus, charge: Any, caplog: pytest.LogCaptureFixture
) -> None:
    first = charge.apply_async((1,), task_id="mine")
    with caplog.at_level(logging.WARNING):
        assert charge.apply_async((2,), task_id="mine").id == first.id
    (warning,) = [record.message for record in caplog.records if "other arguments" in record.message]
    assert "charge was enqueued before with id mine" in warning


@pytest.mark.parametrize("given", ["charge", None, {"task": 1}, print])
def test_what_is_no_signature_is_refused_by_name(argus: Argus, given: Any) -> None:
    project = argus.project("import")
    with pytest.raises(BadTask, match=r"project 'import' takes signatures, for example charge\.s\(17\), not"):
        project.enqueue(given)
    with pytest.raises(BadTask, match="takes signatures"):
        project.enqueue_many([given])


def test_a_task_that_is_not_made_a_signature_is_refused_by_name(argus: Argus, charge: Any) -> None:
    with pytest.raises(BadTask, match="takes signatures"):
        argus.project("import").enqueue(charge)


def test_a_thread_started_inside_a_block_does_not_join_the_project(argus: Argus, charge: Any) -> None:
    with argus.project("import") as project, ThreadPoolExecutor(1) as pool:
        pool.submit(charge.delay, 1).result()
        pool.submit(charge.apply_async, (2,), argus_project="import").result()
    assert project.progress().total == 1


def test_cancel_says_what_the_project_is_then(argus: Argus, charge: Any) -> None:
    project, done = argus.project("import"), argus.project("done")
    project.enqueue(charge.s(1))
    done.close()
    assert project.cancel() is ProjectStatus.CANCELLED
    assert done.cancel() is ProjectStatus.COMPLETED
    assert done.status is ProjectStatus.COMPLETED


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
    with pytest.raises(BadTask, match="a key names one task"):
        argus.project("import").enqueue(group(charge.s(1), charge.s(2)), key="both")


def test_a_task_that_is_not_durable_is_refused_with_the_remedy(argus: Argus) -> None:
    plain = argus.app.tasks["plain"]
    with pytest.raises(BadTask, match="@durable"):
        argus.project("import").enqueue(plain.s())
    with pytest.raises(BadTask, match="@durable"):
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


def test_an_unknown_option_of_enqueue_is_refused_with_the_near_one(argus: Argus, charge: Any) -> None:
    with pytest.raises(BadTask, match=r"has no option unqiue\. Did you mean unique"):
        argus.project("import 2").enqueue(charge.s(1), unqiue=True)


def test_join_refuses_a_timeout_that_is_no_number(argus: Argus) -> None:
    with pytest.raises(ValueError, match=r"join\(timeout=...\)"):
        argus.project("endless").join(timeout=float("nan"))


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
    by_a_rule = (partial(project.configure, deadline=5), partial(project.configure, on_failure="cancel"))
    for end in (project.close, project.cancel, *by_a_rule):
        with pytest.raises(ProjectClosed, match="never ends"):
            end()
    assert project.status is ProjectStatus.OPEN


@pytest.mark.parametrize(("name", "args"), [("charge", (1,)), ("plain", ())])
def test_an_unknown_option_of_a_call_is_refused_with_the_near_one(argus: Argus, name: str, args: Any) -> None:
    with pytest.raises(BadTask, match=rf"a call of {name} has no option argus_kye. Did you mean argus_key\?"):
        argus.app.tasks[name].apply_async(args, argus_kye="order-1")
    assert reports.totals(argus.runtime.store)[TaskState.WAITING] == 0
    assert reports.totals(argus.runtime.store)[TaskState.QUEUED] == 0
