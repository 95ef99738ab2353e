"""What a run's body enqueues is enqueued once, however often the run is repeated after a loss."""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

import pytest
from celery import chain, chord, group
from celery.exceptions import Ignore

from argus_celery import current, durable, signals
from argus_celery.errors import BadStep
from argus_celery.hooks.outbox import Execution
from argus_celery.hooks.trace import _in_hand
from argus_celery.records import Claim, TaskState
from tests.integration.embedded import Shop, shop, until
from tests.store.bench import counted

pytestmark = pytest.mark.redis


@pytest.fixture
def bench(sqlite_store_url: str, redis_broker: str) -> Shop:
    made = shop(sqlite_store_url, redis_broker)
    _tasks(made)
    return made


def _tasks(made: Shop) -> None:
    app, log = made.app, made.log

    @durable
    @app.task(shared=False, name="shop.add")
    def add(x: int, y: int) -> int:
        log.append(("add", x, y))
        return x + y

    @durable
    @app.task(shared=False, name="shop.total")
    def total(parts: list[int]) -> int:
        log.append(("total", tuple(parts)))
        return sum(parts)

    @app.task(shared=False, name="shop.plain")
    def plain(x: int) -> int:
        log.append(("plain", x))
        return x


def _parent(made: Shop, calls: Callable[[int], Any], *, runs: int = 2, noted: int = 0) -> list[Any]:
    """A durable task whose body makes the calls (it is told the number of its run) and is lost after them, but for its
    last run; returns what the calls returned in each run, when the bodies have noted as much and all have ended."""
    returned: list[Any] = []

    @durable
    @made.app.task(shared=False, name="shop.parent")
    def parent() -> None:
        returned.append(calls(len(returned) + 1))
        if len(returned) < runs:
            raise SystemExit("as if its process had died")

    with made.worker():
        parent.delay()
        until(lambda: len(made.log) >= noted, 20, lambda: made.log)
        made.drained()
    return returned


def _ids(result: Any) -> Any:
    """Every id that a caller can learn from a result."""
    if isinstance(result, list):
        return [_ids(one) for one in result]
    own = (type(result).__name__, result.id, _ids(result.parent) if result.parent else None)
    return (*own, [_ids(one) for one in result.results]) if hasattr(result, "results") else own


CALLS: dict[str, tuple[Callable[[Shop], Any], list[Any]]] = {
    "delay": (lambda s: [_add(s).delay(n, 0) for n in range(3)], [("add", n, 0) for n in range(3)]),
    "countdown": (lambda s: _add(s).apply_async((1, 2), countdown=1), [("add", 1, 2)]),
    "send_task": (lambda s: s.app.send_task("shop.add", (1, 2)), [("add", 1, 2)]),
    "signature": (lambda s: _add(s).s(1).delay(2), [("add", 2, 1)]),
    "frozen": (lambda s: _frozen(_add(s).s(1, 2)), [("add", 1, 2)]),
    "link": (lambda s: _add(s).apply_async((1, 2), link=_add(s).s(3)), [("add", 1, 2), ("add", 3, 3)]),
    "many": (
        lambda s: s.argus.project("p").enqueue_many(_add(s).s(n, 0) for n in range(3)),
        [("add", n, 0) for n in range(3)],
    ),
    "many groups": (
        lambda s: s.argus.project("p").enqueue_many(group(_add(s).s(n, 0), _add(s).s(n, 1)) for n in range(2)),
        [("add", n, k) for n in range(2) for k in range(2)],
    ),
    "group": (lambda s: group(_add(s).s(n, 0) for n in range(3)).delay(), [("add", n, 0) for n in range(3)]),
    "chain": (lambda s: chain(_add(s).s(1, 2), _add(s).s(4))(), [("add", 1, 2), ("add", 3, 4)]),
    "chord": (
        lambda s: chord([_add(s).s(n, 0) for n in range(3)], _total(s).s()).delay(),
        [*(("add", n, 0) for n in range(3)), ("total", (0, 1, 2))],
    ),
    "chord from a generator": (
        lambda s: chord(_add(s).s(n, 0) for n in range(3))(_total(s).s()),
        [*(("add", n, 0) for n in range(3)), ("total", (0, 1, 2))],
    ),
    "chain into a chord": (
        lambda s: chain(_add(s).s(1, 0), group(_add(s).s(1), _add(s).s(2)), _total(s).s())(),
        [("add", 1, 0), ("add", 1, 1), ("add", 1, 2), ("total", (2, 3))],
    ),
    "map": (lambda s: _add(s).starmap([(1, 2), (3, 4)]).delay(), [("add", 1, 2), ("add", 3, 4)]),
    "chunks": (
        lambda s: _add(s).chunks([(n, 0) for n in range(3)], 2).delay(),
        [("add", n, 0) for n in range(3)],
    ),
    "another project": (lambda s: _add(s).apply_async((1, 2), argus_project="other"), [("add", 1, 2)]),
}


def _add(s: Shop) -> Any:
    return s.app.tasks["shop.add"]


def _total(s: Shop) -> Any:
    return s.app.tasks["shop.total"]


def _frozen(signature: Any) -> Any:
    frozen = signature.freeze()
    assert signature.apply_async().id == frozen.id
    return frozen


@pytest.mark.parametrize("call", CALLS)
def test_a_run_repeated_after_a_loss_enqueues_nothing_twice_and_returns_the_first_results(
    bench: Shop, call: str
) -> None:
    make, runs = CALLS[call]
    first, second, third = _parent(bench, lambda _: make(bench), runs=3, noted=len(runs))
    assert _ids(first) == _ids(second) == _ids(third)
    assert sorted(bench.log, key=repr) == sorted(runs, key=repr)
    assert bench.states() == {TaskState.SUCCEEDED}


def test_a_canvas_that_was_cut_in_the_middle_is_completed_by_the_next_run(bench: Shop) -> None:
    enqueued: list[str] = []

    def cut(task_id: str, name: str, **_: Any) -> None:
        if name == "shop.add":
            enqueued.append(task_id)
            if len(enqueued) == 2:
                raise SystemExit("as if its process had died")

    signals.task_enqueued.connect(cut)
    (result,) = _parent(bench, lambda _: CALLS["chord"][0](bench), runs=1, noted=4)
    assert len(enqueued) == 3
    assert bench.log.count(("total", (0, 1, 2))) == 1
    assert len(bench.log) == 4
    assert result.get(timeout=5) == 3


def test_a_run_that_adds_to_its_chord_and_is_repeated_adds_once(bench: Shop) -> None:
    @durable
    @bench.app.task(shared=False, name="shop.adding", bind=True)
    def adding(self: Any) -> int:
        bench.log.append("adding")
        self.add_to_chord(_add(bench).s(20, 1))
        if bench.log.count("adding") < 3:
            raise SystemExit("as if its process had died")
        return 1

    result = chord([adding.s(), _add(bench).s(1, 1)], _total(bench).s())
    with bench.worker():
        assert result.delay().get(timeout=20) == 24
        bench.drained()
    assert bench.log.count(("add", 20, 1)) == 1
    assert len([one for one in bench.log if one[0] == "total"]) == 1


def test_the_same_call_made_again_in_one_run_is_another_child(bench: Shop) -> None:
    first, _ = _parent(bench, lambda _: [_add(bench).delay(1, 2).id for _ in range(3)])
    assert len(set(first)) == 3
    assert bench.log == [("add", 1, 2)] * 3


def test_a_retry_that_enqueues_again_means_it(bench: Shop) -> None:
    @durable
    @bench.app.task(shared=False, name="shop.again", bind=True)
    def again(self: Any) -> None:
        _add(bench).delay(self.request.retries, 0)
        if self.request.retries < 2:
            raise self.retry(countdown=0)

    with bench.worker():
        again.delay()
        bench.drained()
    assert sorted(bench.log) == [("add", 0, 0), ("add", 1, 0), ("add", 2, 0)]


def test_a_failed_task_that_is_put_back_keeps_the_children_it_has(bench: Shop) -> None:
    @durable
    @bench.app.task(shared=False, name="shop.mended")
    def mended() -> str:
        bench.log.append("mended")
        child = _add(bench).delay(1, 2).id
        if bench.log.count("mended") == 1:
            raise ValueError("not yet")
        return str(child)

    project = bench.argus.project("p")
    with bench.worker():
        failed = project.enqueue(mended.s())
        assert bench.ended(failed.id).state is TaskState.FAILED
        project.retry(failed.id)
        child = failed.get(timeout=20)
        bench.drained()
    assert bench.log.count(("add", 1, 2)) == 1
    assert bench.task(child).state is TaskState.SUCCEEDED


def test_a_task_that_replaces_itself_enqueues_its_children_in_each_of_its_forms(bench: Shop) -> None:
    @durable
    @bench.app.task(shared=False, name="shop.pages", bind=True)
    def pages(self: Any, page: int) -> None:
        _add(bench).delay(page, 0)
        if page < 2:
            self.replace(pages.s(page + 1))

    with bench.worker():
        pages.delay(0)
        bench.drained()
    assert sorted(bench.log) == [("add", 0, 0), ("add", 1, 0), ("add", 2, 0)]


def test_a_run_that_replaces_itself_after_a_loss_hands_over_once(bench: Shop) -> None:
    @durable
    @bench.app.task(shared=False, name="shop.handing", bind=True)
    def handing(self: Any) -> None:
        bench.log.append("handing")
        canvas = chain(_add(bench).s(1, 2), _add(bench).s(4))
        if bench.log.count("handing") == 1:
            canvas.freeze(self.request.id)
            raise SystemExit("as if its process had died")
        self.replace(canvas)

    with bench.worker():
        assert handing.delay().get(timeout=20) == 7
        bench.drained()
    assert bench.log == ["handing", "handing", ("add", 1, 2), ("add", 3, 4)]


@pytest.mark.parametrize("own", ["argus_key", "task_id"])
def test_a_key_or_id_of_the_callers_own_overrides(bench: Shop, own: str) -> None:
    first, second = _parent(
        bench, lambda run: [_add(bench).apply_async((run, 0), **{own: f"order-{run}"}) for _ in "ab"]
    )
    assert first[0].id == first[1].id != second[0].id == second[1].id
    assert sorted(bench.log) == [("add", 1, 0), ("add", 2, 0)]


def test_a_body_that_takes_another_way_loses_none_of_its_calls(bench: Shop) -> None:
    def calls(run: int) -> Any:
        if run == 1:
            return group(_add(bench).s(1, 0), _add(bench).s(2, 0)).delay()
        _total(bench).delay([1])
        return group(_add(bench).s(1, 1), _total(bench).s([2])).delay()

    first, second = _parent(bench, calls)
    assert first.id != second.id
    assert sorted(bench.log) == [("add", 1, 0), ("add", 1, 1), ("add", 2, 0), ("total", (1,)), ("total", (2,))]


def test_other_arguments_in_the_same_place_are_said_once_in_a_run_and_the_first_stand(
    bench: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        first, second = _parent(bench, lambda run: [_add(bench).delay(run, n) for n in range(3)])
    assert _ids(first) == _ids(second)
    assert sorted(bench.log) == [("add", 1, n) for n in range(3)]
    assert caplog.text.count("with other arguments") == 1


def test_a_repeated_canvas_is_not_called_different(bench: Shop, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        _parent(bench, lambda _: [chain(_add(bench).s(1, 2), _add(bench).s(4))(), CALLS["chord"][0](bench)])
    assert "with other arguments" not in caplog.text


def test_a_thread_of_the_body_that_has_its_context_enqueues_children(bench: Shop) -> None:
    def calls(_run: int) -> Any:
        made: list[Any] = []
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(lambda: made.append(_add(bench).delay(1, 2)),))
        thread.start()
        thread.join()
        return made

    first, second = _parent(bench, calls)
    assert _ids(first) == _ids(second)
    assert bench.log == [("add", 1, 2)]


@pytest.mark.parametrize("call", ["delay", "canvas"])
@pytest.mark.parametrize("inside", ["transaction", "savepoint"])
def test_a_child_of_a_transaction_that_was_rolled_back_never_stands_for_another(
    bench: Shop, call: str, inside: str
) -> None:
    def enqueue(number: int) -> Any:
        one = _add(bench).s(number, 0)
        return one.delay() if call == "delay" else chain(one, _add(bench).s(0)).delay()

    def calls(run: int) -> list[str]:
        ids = []
        with current.transaction() if inside == "savepoint" else nullcontext():
            for number in (1, 2, 3, 1):
                with suppress(ZeroDivisionError), current.transaction():
                    ids.append(enqueue(number).id)
                    if run == 1 and number == 1 and len(ids) == 1:
                        raise ZeroDivisionError
        return ids

    first, second = _parent(bench, calls)
    assert first[0] == first[3]  # called again, after the rollback
    assert first[:3] == second[:3]
    assert len(set(first)) == 3
    times = 1 if call == "delay" else 2
    assert sorted(bench.log) == sorted([("add", n, 0) for n in (1, 1, 2, 3) for _ in range(times)])


def test_a_child_of_a_step_that_failed_never_stands_for_that_of_another(bench: Shop) -> None:
    def step(number: int) -> None:
        _add(bench).delay(number, 0)
        if number == 1:
            raise ZeroDivisionError

    def calls(_run: int) -> None:
        for number in (1, 2, 3):
            with suppress(ZeroDivisionError):
                current.step(f"enqueue {number}", step, number)

    _parent(bench, calls)
    assert sorted(bench.log) == [("add", n, 0) for n in (1, 2, 3)]


def test_children_of_the_items_of_a_loop_are_told_apart_behind_a_rollback(bench: Shop) -> None:
    def calls(_run: int) -> list[str]:
        ids = []
        with current.transaction():
            for item in current.each("ab"):
                if item == "a":
                    with suppress(ZeroDivisionError), current.transaction():
                        _add(bench).delay(1, 0)
                        raise ZeroDivisionError
                else:
                    ids += [_add(bench).delay(1, 0).id for _ in range(2)]
        return ids

    assert len(set(_parent(bench, calls, runs=1)[0])) == 2
    assert bench.log == [("add", 1, 0)] * 2


@pytest.mark.parametrize("end", ["returns", "ignores"])
def test_a_body_that_passes_over_a_failed_step_to_another_thing_fails_though_it_catches_all(
    bench: Shop, end: str
) -> None:
    @durable
    @bench.app.task(shared=False, name="shop.passes")
    def passes() -> None:
        for number in range(2):
            with suppress(Exception):
                current.step("divide", lambda number: 1 / number, number)
        if end == "ignores":
            raise Ignore

    with bench.worker():
        result = passes.delay()
        with pytest.raises(BadStep, match=f"task {result.id}: the step 'divide' was called"):
            result.get(timeout=20)


def test_calls_outside_a_durable_run_are_each_their_own(bench: Shop) -> None:
    @bench.app.task(shared=False, name="shop.ordinary")
    def ordinary() -> None:
        _add(bench).delay(1, 2)
        group(_add(bench).s(1, 2)).delay()

    with bench.worker():
        for _ in range(2):
            ordinary.apply_async(task_id="same")
        until(lambda: len(bench.log) == 4)
    assert bench.names().count("add") == 4


def test_an_ordinary_task_that_a_run_sends_is_sent_by_each_run(bench: Shop) -> None:
    first, second = _parent(bench, lambda _: [bench.app.tasks["shop.plain"].delay(1)])
    assert first[0].id != second[0].id


def test_a_child_costs_no_more_statements_than_a_call_from_outside(bench: Shop) -> None:
    _add(bench).delay(0, 0)
    store = bench.argus.runtime.store
    claim = Claim("parent", 2, "w1", bench.argus.default_project_id(), 6000, 0.0)
    with counted(store) as outside:
        _add(bench).delay(1, 2)
    with _in_hand(Execution(bench.argus.runtime, claim, argus=bench.argus, in_body=True)), counted(store) as inside:
        _add(bench).delay(1, 2)
    assert (inside.transactions, inside.statements) == (outside.transactions, outside.statements)
    assert len(bench.rows()) == 3
