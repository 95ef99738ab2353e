"""Chords through a real worker: counted in the store on every result backend, fired once, failing as Celery's do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from celery import chain, chord, group
from celery.exceptions import ChordError, Ignore, TaskRevokedError

from argus_celery import durable
from argus_celery.errors import BadTask, PayloadTooLarge, TaskDead
from argus_celery.flow import chords
from argus_celery.flow.claim import claim
from argus_celery.flow.lapse import lapse
from argus_celery.hooks.fence import Fenced
from argus_celery.hooks.firing import _Firing, fire
from argus_celery.records import Delivery, TaskState
from tests.integration.embedded import Shop, shop, until
from tests.invariants import check_all_ended

pytestmark = pytest.mark.redis

BACKENDS = ("argus://", "redis", "rpc://", "none")


def _shop(store: str, broker: str, backend: str) -> Shop:
    url = {"redis": broker, "none": None}.get(backend, backend)
    made = shop(store, broker, url, max_payload=20_000)
    _tasks(made)
    return made


@pytest.fixture
def store(sqlite_store_url: str) -> str:
    return sqlite_store_url


@pytest.fixture(params=["argus://", "redis"])
def bench(store: str, redis_broker: str, request: pytest.FixtureRequest) -> Iterator[Shop]:
    made = _shop(store, redis_broker, request.param)
    yield made
    check_all_ended(made.argus.runtime.store)


@pytest.fixture(params=BACKENDS)
def any_backend(store: str, redis_broker: str, request: pytest.FixtureRequest) -> Iterator[Shop]:
    made = _shop(store, redis_broker, request.param)
    yield made
    check_all_ended(made.argus.runtime.store)


def _tasks(made: Shop) -> None:
    app, log = made.app, made.log

    def is_durable(name: str, body: Any, max_losses: int | None = None, **options: Any) -> None:
        durable(app.task(body, shared=False, name=f"shop.{name}", **options), max_losses=max_losses)

    def is_ordinary(name: str, body: Any, **options: Any) -> None:
        app.task(body, shared=False, name=f"shop.{name}", **options)

    def echo(value: Any) -> Any:
        return value

    def fail(*_: Any) -> None:
        raise ValueError("broke")

    def total(parts: Any) -> Any:
        log.append(("total", parts))
        return parts

    def errback(task_id: str) -> None:
        log.append(("errback", task_id))

    def called(request: Any, error: Any, traceback: Any) -> None:
        log.append(("called", request.id, type(error).__name__))

    def ignore() -> None:
        raise Ignore

    def odd() -> object:
        return object()

    def large(size: int) -> str:
        return "x" * size

    def adding(self: Any, lazy: bool) -> str:
        added = self.add_to_chord(app.tasks["shop.echo"].s("added"), lazy=lazy)
        if lazy:
            added.delay()
        return "own"

    def replaced(self: Any, by: str) -> Any:
        echo, fails, total = (app.tasks[f"shop.{name}"] for name in ("echo", "fail", "total"))
        canvas = {
            "chain": lambda: chain(fails.si(), echo.s()),
            "chord": lambda: chord([echo.s(1), fails.si()], total.s()),
            "group": lambda: group(echo.s(1), fails.si()),
            "expired": lambda: chain(echo.si(1).set(countdown=60, expires=1), echo.s()),
        }[by]()
        raise self.replace(canvas)

    for name, body in {"echo": echo, "fail": fail, "total": total, "errback": errback, "ignore": ignore}.items():
        is_durable(name, body)
        is_ordinary(f"plain_{name}", body)
    is_durable("silent", echo, ignore_result=True)
    is_durable("odd", odd)
    is_durable("odd_silent", odd, ignore_result=True)
    is_durable("large", large)
    is_durable("large_silent", large, ignore_result=True)
    is_durable("adding", adding, bind=True)
    is_durable("replaced", replaced, bind=True)
    is_durable("frail", echo, max_losses=1)
    is_ordinary("plain_adding", adding, bind=True)
    is_ordinary("called", called)


def _totals(bench: Shop) -> list[Any]:
    return [value for kind, *rest in bench.log if kind == "total" for value in rest]


def _error(result: Any) -> Any:
    """What the chord itself came to; ``get()`` would raise its header's error first."""
    until(lambda: result.state == "FAILURE", 20)
    return result.result


def _sigs(bench: Shop, *names: str) -> list[Any]:
    return [bench.app.tasks[f"shop.{name}"] for name in names]


def _quiet(bench: Shop) -> None:
    """Nothing is alive, and no chord is owed anything."""
    bench.drained()
    until(lambda: not chords.owed(bench.argus.runtime))


# --- on every result backend -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", ["durable", "ordinary", "mixed"])
@pytest.mark.parametrize("body", ["total", "plain_total"])
def test_the_body_runs_once_with_the_parts_in_order(any_backend: Shop, header: str, body: str) -> None:
    echo, plain, total = _sigs(any_backend, "echo", "plain_echo", body)
    kinds = {"durable": [echo, echo, echo], "ordinary": [plain, plain, plain], "mixed": [echo, plain, echo]}[header]
    with any_backend.worker():
        chord([one.s(number) for number, one in enumerate(kinds)], total.s()).delay()
        until(lambda: _totals(any_backend))
        _quiet(any_backend)
    assert _totals(any_backend) == [[0, 1, 2]]


@pytest.mark.parametrize(
    ("shape", "given"),
    [
        ("single", [1]),
        ("empty", []),
        ("generator", [0, 1, 2]),
        ("chain", [1, 2]),
        ("chain ending in a group", [[1, 1], 2]),
        ("chord", [[1, 2], 3]),
        ("silent", [1, 2]),
        ("ignored", [1, None]),
        ("group upgraded", [1, 2]),
    ],
)
def test_a_header_of_any_shape_gives_the_body_its_parts(any_backend: Shop, shape: str, given: Any) -> None:
    echo, total, silent, ignore = _sigs(any_backend, "echo", "total", "silent", "ignore")
    canvas = {
        "single": lambda: chord([echo.s(1)], total.s()),
        "empty": lambda: chord([], total.s(), app=any_backend.app),
        "generator": lambda: chord((echo.s(n) for n in range(3)), total.s()),
        "chain": lambda: chord([chain(echo.s(1), echo.s()), echo.s(2)], total.s()),
        "chain ending in a group": lambda: chord([chain(echo.s(1), group(echo.s(), echo.s())), echo.s(2)], total.s()),
        "chord": lambda: chord([chord([echo.s(1), echo.s(2)], echo.s()), echo.s(3)], total.s()),
        "silent": lambda: chord([silent.s(1), silent.s(2)], total.s()),
        "ignored": lambda: chord([echo.s(1), ignore.si()], total.s()),
        "group upgraded": lambda: group(echo.s(1), echo.s(2)) | total.s(),
    }[shape]()
    with any_backend.worker():
        canvas.delay()
        until(lambda: _totals(any_backend))
        _quiet(any_backend)
    assert _totals(any_backend) == [given]


def test_a_group_made_of_a_generator_follows_a_chain_in_a_chain(any_backend: Shop) -> None:
    echo, total = _sigs(any_backend, "echo", "total")
    canvas = echo.s(1) | (echo.s() | echo.s()) | group(echo.s() for _ in range(3)) | total.s()
    with any_backend.worker():
        canvas()
        until(lambda: _totals(any_backend))
        _quiet(any_backend)
    assert _totals(any_backend) == [[1, 1, 1]]


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("adding", ["adding", "plain_adding"])
def test_a_task_added_to_a_chord_by_its_header_is_waited_for(any_backend: Shop, adding: str, lazy: bool) -> None:
    adds, echo, total = _sigs(any_backend, adding, "echo", "total")
    with any_backend.worker():
        chord([adds.s(lazy), echo.s(2)], total.s()).delay()
        until(lambda: _totals(any_backend))
        _quiet(any_backend)
    (given,) = _totals(any_backend)
    assert sorted(map(str, given)) == ["2", "added", "own"]


def test_a_failing_header_is_an_errback_once_and_no_body_on_every_backend(any_backend: Shop) -> None:
    echo, fail, total, errback = _sigs(any_backend, "echo", "fail", "total", "errback")
    body = total.s().on_error(errback.s())
    with any_backend.worker():
        result = chord([echo.s(1), fail.si(), echo.s(3)], body).delay()
        until(lambda: any_backend.log)
        _quiet(any_backend)
    assert any_backend.log == [("errback", result.id)]


# --- how it fails ----------------------------------------------------------------------------------------------------


def test_the_result_of_a_chord_whose_header_failed_is_a_chord_error(bench: Shop) -> None:
    echo, fail, total, errback, called = _sigs(bench, "echo", "fail", "total", "errback", "called")
    body = total.s().on_error(errback.s()).on_error(called.s())
    result = chord([echo.s(1), fail.si()], body).delay()
    with bench.worker():
        assert re.match(r"Dependency .* raised ValueError\('broke'\)", str(_error(result)))
        until(lambda: len(bench.log) == 2)
        _quiet(bench)
    assert sorted(bench.log) == [("called", result.id, "ChordError"), ("errback", result.id)]


def test_a_group_as_body_fails_task_by_task_with_each_errback_once(bench: Shop) -> None:
    echo, fail, total, errback = _sigs(bench, "echo", "fail", "total", "errback")
    body = group(total.s().on_error(errback.s()), total.s())
    result = chord([echo.s(1), fail.si()], body).delay()
    with bench.worker():
        until(lambda: [one.state for one in result.results] == ["FAILURE"] * 2)
        until(lambda: bench.log)
        _quiet(bench)
    assert bench.log == [("errback", result.results[0].id)]


def test_a_chord_in_a_chain_fails_the_rest_of_the_chain(bench: Shop) -> None:
    echo, fail, total = _sigs(bench, "echo", "fail", "total")
    result = chain(echo.s(0), group(echo.si(1), fail.si()), total.s(), echo.s()).delay()
    with bench.worker():
        with pytest.raises(Exception, match="broke"):
            result.get(timeout=20)
        _quiet(bench)
    assert _totals(bench) == []


@pytest.mark.parametrize("body", ["task", "group"])
def test_an_errback_linked_to_a_chord_of_chords_is_called_once(bench: Shop, body: str) -> None:
    echo, fail, total, errback = _sigs(bench, "echo", "fail", "total", "errback")
    innermost = chord([echo.si(1), fail.si()], echo.s())
    inner = chord([echo.si(2), innermost], echo.s() if body == "task" else group(echo.s()))
    outer = chord([echo.si(3), inner], total.s())
    outer.link_error(errback.s())
    result = outer.delay()
    with bench.worker():
        assert isinstance(_error(result), ChordError)
        until(lambda: bench.log)
        _quiet(bench)
    assert bench.log == [("errback", result.id)]


@pytest.mark.parametrize("inner", ["chord", "chain", "chain with a group", "chord with a group"])
def test_a_part_that_never_comes_fails_the_chord_around_it(bench: Shop, inner: str) -> None:
    echo, fail, total, errback = _sigs(bench, "echo", "fail", "total", "errback")
    failing = {
        "chord": lambda: chord([fail.si(), echo.s(1)], echo.s()),
        "chain": lambda: chain(fail.si(), echo.s(), echo.s()),
        "chain with a group": lambda: chain(fail.si(), group(echo.s(), echo.s())),
        "chord with a group": lambda: chord([fail.si(), echo.s(1)], group(echo.s(), echo.s())),
    }[inner]()
    result = chord([failing, echo.s(3)], total.s().on_error(errback.s())).delay()
    with bench.worker():
        assert isinstance(_error(result), ChordError)
        until(lambda: bench.log)
        _quiet(bench)
    assert bench.log == [("errback", result.id)]


def _dead(bench: Shop, task_id: str) -> None:
    (granted,) = claim(bench.argus.runtime, "w1", [Delivery(task_id, 1)])
    assert granted is not None
    lapse(bench.argus.runtime, "w1", task_id, granted.token, "killed")


@pytest.mark.parametrize(
    ("how", "cause"),
    [("dead", TaskDead), ("expired", TaskRevokedError), ("revoked", TaskRevokedError)],
)
@pytest.mark.parametrize("place", ["header", "chain in the header"])
def test_a_header_task_that_ends_without_a_run_fails_the_chord(
    bench: Shop, how: str, cause: type[Exception], place: str
) -> None:
    echo, frail, total, errback = _sigs(bench, "echo", "frail", "total", "errback")
    options = {"expired": {"countdown": 60, "expires": 0.5}, "revoked": {"countdown": 60}, "dead": {}}[how]
    ends = frail.s(1).set(**options)
    ends.freeze()
    task_id = ends.options["task_id"]
    member = ends if place == "header" else chain(ends, echo.s())
    result = chord([member, echo.s(2)], total.s().on_error(errback.s())).delay()
    if how == "dead":
        _dead(bench, task_id)
    elif how == "revoked":
        bench.app.AsyncResult(task_id).revoke()
    else:
        bench.argus.runtime.store.clock_shift += 61_000
    with bench.worker():
        assert cause.__name__ in str(_error(result))
        until(lambda: bench.log)
        _quiet(bench)
    assert bench.log == [("errback", result.id)]


def test_nothing_of_a_chord_starts_when_its_project_is_cancelled(bench: Shop) -> None:
    echo, total, errback = _sigs(bench, "echo", "total", "errback")
    project = bench.argus.project("import")
    with project:
        result = chord([echo.s(1), echo.s(2)], total.s().on_error(errback.s())).delay()
    project.cancel()
    with bench.worker():
        until(lambda: result.state in ("FAILURE", "REVOKED"))
        _quiet(bench)
    assert bench.log == []


@pytest.mark.parametrize("name", ["odd", "odd_silent"])
def test_a_part_that_does_not_serialise_is_one_failure_that_the_chord_is_told(bench: Shop, name: str) -> None:
    odd, echo, total = _sigs(bench, name, "echo", "total")
    result = chord([odd.si(), echo.s(1)], total.s()).delay()
    with bench.worker():
        assert isinstance(_error(result), ChordError)
        _quiet(bench)
    assert [row.outcome for row in bench.rows().values() if row.name == f"shop.{name}"] == ["failed"]


@pytest.mark.parametrize("name", ["large", "large_silent"])
def test_a_part_above_the_limit_fails_its_task_and_the_chord(bench: Shop, name: str) -> None:
    large, echo, total = _sigs(bench, name, "echo", "total")
    result = chord([large.s(30_000), echo.s(1)], total.s()).delay()
    with bench.worker():
        assert "argus_max_payload" in str(_error(result))
        _quiet(bench)


def test_parts_that_are_too_large_together_fail_the_chord(bench: Shop) -> None:
    large, total = _sigs(bench, "large", "total")
    result = chord([large.s(12_000), large.s(12_000)], total.s()).delay()
    with bench.worker():
        assert "argus_max_payload" in str(_error(result))
        _quiet(bench)


@pytest.mark.parametrize("task_id", ["x" * 256, "nul\0"])
def test_an_id_that_no_store_holds_is_refused_where_the_canvas_is_called(
    store: str, redis_broker: str, task_id: str
) -> None:
    bench = _shop(store, redis_broker, "argus://")
    echo, total = _sigs(bench, "echo", "total")
    odd = total.s().set(task_id=task_id)
    called = [
        chord([echo.s(1), echo.s(2)], odd),
        chain(echo.s(1), echo.s(), odd),
        chain(echo.s(1), chord([echo.s(), echo.s()], odd)),
        chain(echo.s(1), chord([echo.s(), odd], total.s())),
        echo.s(1).on_error(odd),
        chord([echo.s(1), echo.s(2)], total.s().on_error(odd)),
    ]
    for one in called:
        with pytest.raises(BadTask, match="the task id of"):
            one.delay()
    assert bench.rows() == {}


@pytest.mark.parametrize("member", ["echo", "plain_echo"])
def test_a_body_above_the_limit_is_refused_before_anything_is_sent(bench: Shop, member: str) -> None:
    echo, total = _sigs(bench, member, "total")
    with pytest.raises(PayloadTooLarge, match="argus_max_payload"):
        chord([echo.s(1)], total.s(["x" * 30_000])).delay()
    assert bench.rows() == {}


# --- what else there is ----------------------------------------------------------------------------------------------


def test_a_body_that_this_process_does_not_know_is_sent_by_name(bench: Shop, redis_broker: str) -> None:
    (echo,) = _sigs(bench, "echo")
    chord([echo.s(1), echo.s(2)], bench.app.signature("elsewhere.total").set(queue="elsewhere")).delay()
    client = redis.Redis.from_url(redis_broker)
    with bench.worker():
        until(lambda: client.llen("elsewhere") == 1)
        _quiet(bench)


def test_a_header_task_that_is_delivered_twice_counts_once(bench: Shop, redis_broker: str) -> None:
    plain, total = _sigs(bench, "plain_echo", "total")
    chord([plain.s(1), plain.s(2).set(queue="later")], total.s()).delay()
    client = redis.Redis.from_url(redis_broker)
    raw = client.lindex("celery", 0)
    client.rpush("celery", raw, raw)
    with bench.worker():
        until(lambda: client.llen("celery") == 0 and client.hlen("unacked") == 0)
        assert _totals(bench) == []
        client.rpush("celery", client.lpop("later"))
        until(lambda: _totals(bench))
        _quiet(bench)
    assert _totals(bench) == [[1, 2]]


def test_nothing_is_counted_in_redis_and_no_chord_is_polled(bench: Shop, redis_broker: str) -> None:
    echo, plain, total = _sigs(bench, "echo", "plain_echo", "total")
    client = redis.Redis.from_url(redis_broker)
    chord([echo.s(1), plain.s(2)], total.s()).delay()
    assert all(b"chord_unlock" not in raw for raw in client.lrange("celery", 0, -1))
    with bench.worker():
        until(lambda: _totals(bench))
        _quiet(bench)
    assert client.keys("celery-taskset-meta-*") == []
    assert client.keys("chord-unlock-*") == []


def test_a_chord_that_the_store_does_not_know_is_counted_by_its_backend(store: str, redis_broker: str) -> None:
    """Begun by a producer without Argus."""
    made = _shop(store, redis_broker, "redis")
    echo, plain, total = _sigs(made, "echo", "plain_echo", "total")
    from celery import Celery

    stranger = Celery(made.app.main, broker=redis_broker, backend=redis_broker, set_as_current=False)
    header = [stranger.signature(one.name, (number,)) for number, one in enumerate((echo, plain, echo))]
    chord(header, stranger.signature(total.name), app=stranger).delay()
    with made.worker():
        until(lambda: _totals(made))
        made.drained()
    assert _totals(made) == [[0, 1, 2]]


@pytest.mark.parametrize("outcome", ["echo", "fail"])
def test_a_full_chord_that_nobody_has_fired_is_fired_by_whoever_sweeps(
    bench: Shop, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    echo, last, total, errback = _sigs(bench, "echo", outcome, "total", "errback")
    with monkeypatch.context() as killed:
        killed.setattr(type(bench.argus), "fire", lambda self, chord_ids: 0)
        killed.setattr(type(bench.argus), "pay_debts", lambda self, limit=100: 0)
        result = chord([echo.s(1), last.s(2)], total.s().on_error(errback.s())).delay()
        with bench.worker():
            until(lambda: chords.owed(bench.argus.runtime))
    assert [bench.argus.pay_debts(), bench.argus.pay_debts()] == [1, 0]
    with bench.worker():
        _quiet(bench)
    assert bench.log == ([("total", [1, 2])] if outcome == "echo" else [("errback", result.id)])


def test_all_who_fire_a_chord_at_once_name_its_errbacks_alike_and_a_later_firing_otherwise(
    store: str, redis_broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result backend is told of them by each, and only the first to record enqueues them."""
    bench = _shop(store, redis_broker, "redis")
    echo, fail, total, errback = _sigs(bench, "echo", "fail", "total", "errback")
    monkeypatch.setattr(type(bench.argus), "fire", lambda self, chord_ids: 0)
    monkeypatch.setattr(type(bench.argus), "pay_debts", lambda self, limit=100: 0)
    rt, project, named = bench.argus.runtime, bench.argus.project("import"), []
    with project:
        result = chord([echo.s(1), fail.si()], total.s().on_error(errback.s())).delay()
    for _ in range(2):
        with bench.worker():
            until(lambda: chords.owed(rt))
        owed = chords.read_owed(rt, result.parent.id)
        assert owed is not None
        firings = [_Firing(bench.argus, owed)._following() for _ in range(2)]
        one, other = ([task.message.headers["id"] for task in firing.tasks] for firing in firings)
        assert one == other and len(one) == 1
        if not named:
            assert fire(bench.argus, [owed.id]) == 1
            project.retry_failed(name="shop.fail")
        named += one
    assert len(set(named)) == 2
    monkeypatch.undo()
    with bench.worker():
        _quiet(bench)


@pytest.mark.parametrize("by", ["chain", "chord", "group", "expired"])
def test_a_task_replaced_by_what_fails_fails_and_so_does_its_project(bench: Shop, by: str) -> None:
    replaced, echo, errback = _sigs(bench, "replaced", "echo", "errback")
    project = bench.argus.project("import")
    with project:
        result = chain(replaced.s(by).on_error(errback.s()), echo.s()).delay()
    project.close()
    with bench.worker():
        if by == "expired":
            until(lambda: len(bench.rows()) == 2)
            bench.argus.runtime.store.clock_shift += 61_000
        until(lambda: result.parent.state == "FAILURE")
        until(lambda: result.state == "FAILURE")
        assert project.join(timeout=20) == "failed"
        bench.drained()
    assert bench.task(result.parent.id).state is TaskState.FAILED
    assert len(bench.log) <= 1


@pytest.mark.parametrize("by", ["chain", "chord", "group"])
def test_a_header_task_replaced_by_what_fails_is_a_failed_part(bench: Shop, by: str) -> None:
    replaced, echo, total, errback = _sigs(bench, "replaced", "echo", "total", "errback")
    result = chord([replaced.s(by), echo.s(1)], total.s().on_error(errback.s())).delay()
    with bench.worker():
        assert isinstance(_error(result), ChordError)
        until(lambda: bench.log)
        _quiet(bench)
    assert bench.log == [("errback", result.id)]


def test_a_run_that_is_killed_before_it_tells_what_follows_leaves_that_to_the_sweep(
    bench: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail, echo, total, errback = _sigs(bench, "fail", "echo", "total", "errback")
    result = chord([chain(fail.si(), echo.s()), echo.s(1)], total.s().on_error(errback.s())).delay()
    with monkeypatch.context() as killed:
        killed.setattr(Fenced, "_pay", lambda self, mark: None)
        killed.setattr(type(bench.argus), "pay_debts", lambda self, limit=100: 0)
        with bench.worker():
            bench.drained()
    assert bench.log == []
    bench.argus.runtime.store.clock_shift += 11_000  # the grace of a run that has just ended
    bench.argus.pay_debts()
    with bench.worker():
        assert isinstance(_error(result), ChordError)
        until(lambda: bench.log)
        _quiet(bench)
    assert bench.log == [("errback", result.id)]


def test_a_message_that_cannot_be_read_is_a_failed_part(bench: Shop, redis_broker: str) -> None:
    echo, total = _sigs(bench, "echo", "total")
    result = chord([echo.s(1).set(queue="broken"), echo.s(2)], total.s()).delay()
    client = redis.Redis.from_url(redis_broker)
    message = json.loads(client.lpop("broken"))
    message["content-type"] = "application/x-python-serialize"
    client.rpush("celery", json.dumps(message))
    with bench.worker():
        until(lambda: TaskState.FAILED in bench.states())
        bench.argus.runtime.store.clock_shift += 11_000  # the grace of a run that has just ended
        assert "cannot be read" in str(_error(result))
        _quiet(bench)
