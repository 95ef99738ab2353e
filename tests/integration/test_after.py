"""Dependencies from the outside: calls, canvases, results of the parents. What races is in tests/flow/test_after.py."""

from __future__ import annotations

from typing import Any

import pytest
from celery import chain, chord, group
from celery.exceptions import ChordError, TaskRevokedError

from argus_celery import current, durable
from argus_celery.errors import BadTask, TaskAbandoned
from argus_celery.records import TaskState
from argus_celery.store import reports
from tests.integration.embedded import Shop, shop

pytestmark = pytest.mark.redis


@pytest.fixture
def bench(sqlite_store_url: str, redis_broker: str, request: pytest.FixtureRequest) -> Shop:
    backend = redis_broker if getattr(request, "param", None) == "redis" else "argus://"
    made = shop(sqlite_store_url, redis_broker, backend)
    app = made.app

    @durable
    @app.task(shared=False, name="shop.add")
    def add(*numbers: int) -> int:
        made.log.append(numbers)
        return sum(numbers)

    @durable
    @app.task(shared=False, name="shop.fail")
    def fail(*_: Any) -> None:
        raise KeyError("broke")

    @durable
    @app.task(shared=False, name="shop.total")
    def total(*_: Any) -> list[Any]:
        return [value if isinstance(value, int) else type(value).__name__ for value in current.parents.values()]

    @durable
    @app.task(shared=False, name="shop.fanout")
    def fanout() -> str:
        project = made.argus.project(current.project or "")
        children = project.enqueue_many(add.s(number) for number in (1, 2))
        return str(project.enqueue(total.s(), after=[current.task_id, *children]).id)

    @app.task(shared=False, name="shop.plain")
    def plain(*_: Any) -> None: ...

    return made


def task(bench: Shop, name: str) -> Any:
    return bench.app.tasks[f"shop.{name}"]


@pytest.mark.parametrize("bench", ["argus", "redis"], indirect=True)
def test_a_task_runs_behind_its_parents_and_sees_their_results_in_order(bench: Shop) -> None:
    project, add = bench.argus.project("import"), task(bench, "add")
    one, two = project.enqueue(add.s(1)), project.enqueue(add.s(2), key="two")
    both = project.enqueue(task(bench, "total").s(), after=["two", one])
    silent = project.enqueue(add.s(3).set(ignore_result=True))
    late = add.apply_async((5,), argus_project="import", argus_after=both)
    (last,) = project.enqueue_many([task(bench, "total").s().set(argus_after=[both, [one.id], silent])])
    assert reports.task_info(bench.argus.runtime.store, both.id).waits_for == (two.id, one.id)  # type: ignore[union-attr]
    with bench.worker():
        assert both.get(timeout=20) == [2, 1]
        assert last.get(timeout=20) == ["list", 1, "NoneType"]
        late.get(timeout=20)
    assert bench.log[-1] == (5,)


@pytest.mark.parametrize("bench", ["argus", "redis"], indirect=True)
def test_a_signature_that_names_results_is_copied_by_celery_though_its_app_is_not_the_current_one(bench: Shop) -> None:
    project, add = bench.argus.project("import"), task(bench, "add")
    one, several = project.enqueue(add.s(1)), project.enqueue(group(add.s(2), add.s(3)))
    waiting = add.si(4).set(argus_after=[one, several])
    copied = waiting.clone()
    assert [result.id for result in copied.options["argus_after"]] == [one.id, several.id]
    chained = project.enqueue(chain(waiting, add.s(40)))
    grouped = project.enqueue(group(waiting, add.s(5)))
    with bench.worker():
        assert (chained.get(timeout=20), grouped.get(timeout=20)) == (44, [4, 5])
    assert bench.log.index((4,)) > max(bench.log.index((number,)) for number in (1, 2, 3))


@pytest.mark.parametrize("bench", ["argus", "redis"], indirect=True)
def test_a_failure_abandons_or_is_told_to_who_runs_all_the_same(bench: Shop) -> None:
    project, total, add = bench.argus.project("import"), task(bench, "total"), task(bench, "add")
    failing, revoked = project.enqueue(task(bench, "fail").s()), project.enqueue(add.s(1))
    abandoned = project.enqueue(chain(total.s(), total.s()), after=failing)
    told = project.enqueue(chord([add.s(1), add.s(2).set(argus_after=[failing.id])], add.s()))
    silent = project.enqueue(total.s().on_error(add.si(99)), after=failing)
    regardless = project.enqueue(total.s(), after=[failing, revoked], if_failed="run")
    revoked.revoke()
    with bench.worker():
        assert regardless.get(timeout=20) == [KeyError.__name__, TaskRevokedError.__name__]
        bench.drained()
        with pytest.raises(TaskAbandoned, match=f"it comes after {failing.id}, which ended failed"):
            abandoned.get(timeout=20)
        assert isinstance(told.get(timeout=20, propagate=False), ChordError)
    assert bench.task(silent.id).state is TaskState.FAILED
    assert (99,) not in bench.log
    assert bench.task(abandoned.parent.id).state is TaskState.FAILED


def test_a_chain_waits_with_its_first_task_and_a_group_with_each(bench: Shop) -> None:
    project, add = bench.argus.project("import"), task(bench, "add")
    parents = project.enqueue(group(add.s(1), add.s(2)))
    result = project.enqueue(group(add.s(10), chain(add.s(20), add.s(1))), after=parents)
    info = bench.task(result.results[0].id)
    assert info.waits_for == tuple(one.id for one in parents.results)
    with bench.worker():
        assert result.get(timeout=20) == [10, 21]
    assert set(bench.log[:2]) == {(1,), (2,)}


def test_a_running_task_enqueues_what_comes_after_itself_and_its_children(bench: Shop) -> None:
    result = task(bench, "fanout").delay()
    with bench.worker():
        last = bench.app.AsyncResult(result.get(timeout=20))
        assert last.get(timeout=20) == ["str", 1, 2]


def test_nothing_of_it_is_in_the_message(bench: Shop) -> None:
    project, add = bench.argus.project("import"), task(bench, "add")
    first = project.enqueue(add.s(1))
    project.enqueue(chain(add.s(1), add.s(2)), after=first)
    for row in bench.rows().values():
        assert "argus" not in row.message
        assert first.id not in bytes(row.body).decode() or row.id == first.id


def test_what_cannot_wait_is_refused_and_nothing_is_written(bench: Shop) -> None:
    project, add = bench.argus.project("import"), task(bench, "add")
    first = project.enqueue(add.s(1))
    one, two = add.s(1), group(add.s(1), add.s(2))
    for canvas in (chord([one], add.s()), chain(two, add.s()), group(chord([one], add.s())), chain(two | one, one)):
        with pytest.raises(BadTask, match=r"cannot come after|has to begin with a task"):
            project.enqueue(canvas, after=first)
        with pytest.raises(BadTask, match=r"cannot come after|has to begin with a task"):
            project.enqueue_many([canvas.set(argus_after=[first.id])])
    for given in (7, add.s(2), {"id": first.id}, [None, 7.5]):
        with pytest.raises(BadTask, match="after takes results, ids or keys"):
            project.enqueue(add.s(2), after=given)
    with pytest.raises(BadTask, match=r"if_failed must be 'abandon' or 'run', not 'rum'\. Did you mean run\?"):
        project.enqueue(add.s(2), after=first, if_failed="rum")
    with pytest.raises(BadTask, match=r"shop\.plain is not durable, and cannot come after other tasks"):
        task(bench, "plain").apply_async(argus_after=[first.id])
    with pytest.raises(BadTask, match="is to come after 'nobody'"):
        project.enqueue(add.s(2), after="nobody")
    assert list(bench.rows()) == [first.id]


def test_what_follows_in_a_canvas_has_no_after_of_its_own(bench: Shop) -> None:
    """It is refused where it is called, wherever in the canvas it stands, and nothing of the canvas is written."""
    project, add = bench.argus.project("import"), task(bench, "add")
    first = project.enqueue(add.s(1))
    one, late = add.s(1), add.s(2).set(argus_after=[first.id])
    canvases = [
        chain(one, late),
        chain(one, add.s(1), late),
        chain(one, group(add.s(1), late)),
        chain(one, chord([add.s(1), late], add.s())),
        chain(group(one, add.s(1)), late),
        chord([one, add.s(1)], late),
        chord([one, add.s(1)], chain(add.s(), late)),
        group(one, chain(add.s(1), late)),
        chord(group(one, chain(add.s(1), late)), add.s()),
        group(add.s(1), add.s(1).set(link=late)),
        add.s(1).set(link=late),
        add.s(1).on_error(late),
        chain(task(bench, "plain").s(), late),
    ]
    for canvas in canvases:
        with pytest.raises(BadTask, match=r"shop\.add follows another task in a canvas"):
            canvas.delay()
        with pytest.raises(BadTask, match=r"shop\.add follows another task in a canvas"):
            project.enqueue_many([canvas])
    lazy = group(chain(add.s(number), late) for number in (1, 2))
    with pytest.raises(BadTask, match=r"shop\.add follows another task in a canvas"):
        lazy.delay()
    assert list(bench.rows()) == [first.id]
    project.enqueue(chord([late, add.s(1)], add.s()))  # what a canvas begins with may wait


def test_what_follows_in_a_canvas_that_a_body_calls_or_becomes_has_none_either(bench: Shop) -> None:
    add = task(bench, "add")
    first = add.delay(1)

    @durable
    @bench.app.task(shared=False, name="shop.careless", bind=True)
    def careless(self: Any, becomes: bool) -> None:
        canvas = chain(add.s(1), add.s(2).set(argus_after=[first.id]))
        raise self.replace(canvas) if becomes else AssertionError(canvas.delay())

    calls = [careless.delay(becomes) for becomes in (False, True)]
    with bench.worker():
        for call in calls:
            with pytest.raises(BadTask, match=r"shop\.add follows another task in a canvas"):
                call.get(timeout=20)
    assert bench.rows().keys() == {first.id, *(call.id for call in calls)}


def test_a_task_is_given_more_to_wait_for(bench: Shop) -> None:
    project, add = bench.argus.project("import"), task(bench, "add")
    child, parent = project.enqueue(add.s(2)), project.enqueue(add.s(1))
    project.add_after(child, [parent])
    with pytest.raises(BadTask, match=f"for ever: {parent.id} after {child.id} after {parent.id}"):
        project.add_after(parent.id, child)
    with bench.worker():
        child.get(timeout=20)
    assert bench.log == [(1,), (2,)]


def test_a_retried_parent_brings_back_what_comes_after_it_with_its_chain(bench: Shop) -> None:
    project, add = bench.argus.project("import"), task(bench, "add")
    broken = [True]

    @durable
    @bench.app.task(shared=False, name="shop.once")
    def once() -> int:
        if broken:
            raise KeyError(broken.pop())
        return 1

    parent = project.enqueue(once.s())
    result = project.enqueue(chain(add.s(2), add.s(3)), after=parent)
    with bench.worker():
        bench.drained()
        assert project.retry_failed() == [parent.id]
        assert bench.app.AsyncResult(result.id).get(timeout=20) == 5
    assert bench.states() == {TaskState.SUCCEEDED}
