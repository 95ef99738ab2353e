"""``@step``: names, keys, retries and time limits; and what is refused where it is written."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any
from uuid import UUID

import pytest
from celery.exceptions import Ignore, Reject, Retry, SoftTimeLimitExceeded

from argus_celery import current, signals, step
from argus_celery.errors import BadStep, LeaseLost, PayloadTooLarge, SettingError, StepTimeout
from argus_celery.flow.trying import StepOptions
from tests.flow.conftest import FlowBench
from tests.flow.running import JsonRun, Log, begin, names, taken_over

QUICK: dict[str, Any] = {"backoff": 0.001, "backoff_max": 0.01}


@pytest.fixture
def run(sqlite_bench: FlowBench) -> JsonRun:
    return begin(sqlite_bench, sqlite_bench.running())


@pytest.fixture
def bench(sqlite_bench: FlowBench) -> FlowBench:
    return sqlite_bench


@step
def download(log: Log, url: str) -> str:
    return str(log.do(url))


@step(key="args.url")
def fetch(log: Log, url: str) -> str:
    return str(log.do(url))


@step(name="parse it", key=lambda log, url: url.upper())
def parse(log: Log, url: str) -> str:
    return str(log.do(url))


class Site:
    def __init__(self, log: Log) -> None:
        self.log = log

    @step(key="args.url", retries=1, backoff=0)
    def get(self, url: str) -> str:
        self.log.append(url)
        if self.log.count(url) == 1:
            raise OSError(url)
        return url


def test_calls_of_a_decorated_function_are_steps(bench: FlowBench, run: JsonRun, log: Log) -> None:
    for _ in range(2):
        assert [download(log, "a"), download(log, "b"), fetch(log, url="a"), parse(log, "a")] == ["a", "b", "a", "a"]
        run = begin(bench, taken_over(bench, run.claim))
    assert names(bench) == ["download", "download#2", 'fetch("a")', 'parse it("A")']
    assert log == ["a", "b", "a", "a"]


def test_a_decorated_method_is_called_with_its_options_under_either_name(
    bench: FlowBench, run: JsonRun, log: Log
) -> None:
    site = Site(log)
    assert site.get("a") == "a"
    assert current.step("another name", site.get, "b") == "b"
    assert log == ["a", "a", "b", "b"]
    assert names(bench) == ['Site.get("a")', "another name"]


def test_outside_a_run_a_decorated_function_is_just_called(log: Log) -> None:
    assert download(log, "a") == "a"
    with pytest.raises(OSError):
        Site(log).get("b")


def test_a_decorated_coroutine_function_stays_one(bench: FlowBench, run: JsonRun, log: Log) -> None:
    @step(key="args.0", retries=2, **QUICK)
    async def afetch(url: str) -> str:
        log.append(url)
        if len(log) < 3:
            raise OSError(url)
        return url

    assert asyncio.iscoroutinefunction(afetch)
    assert asyncio.run(afetch("a")) == "a"
    assert log == ["a"] * 3
    begin(bench, taken_over(bench, run.claim))
    assert asyncio.run(afetch("a")) == "a"
    assert log == ["a"] * 3


# --- retries -----------------------------------------------------------------------------------------------------


def failing(log: Log, times: int, error: Any = OSError, **options: Any) -> Any:
    @step(**{**QUICK, **options})
    def act() -> str:
        if len(log) < times:
            raise error(log.do("failed"))
        return "done"

    return act


def test_a_step_is_called_again_as_often_as_it_may(run: JsonRun, log: Log) -> None:
    told: list[Any] = []

    def note(name: str, tried: int, error: Exception, **_: Any) -> None:
        told.append((name, tried, type(error)))

    signals.step_retried.connect(note)
    try:
        assert current.step("act", failing(log, 2, retries=2)) == "done"
    finally:
        signals.step_retried.disconnect(note)
    assert told == [("act", 1, OSError), ("act", 2, OSError)]
    log.clear()
    with pytest.raises(OSError, match="failed"):
        current.step("another", failing(log, 9, retries=2))
    assert len(log) == 3


def test_only_errors_that_are_named_are_met_by_another_call(run: JsonRun, log: Log) -> None:
    with pytest.raises(KeyError):
        current.step("act", failing(log, 9, KeyError, retries=5, retry_for=(OSError, ValueError)))
    assert len(log) == 1
    assert current.step("act again", failing(log, 2, retries=5, retry_for=OSError)) == "done"


@pytest.mark.parametrize(
    "error", [LeaseLost, Ignore, Retry, Reject, SoftTimeLimitExceeded, BadStep, PayloadTooLarge, KeyboardInterrupt]
)
def test_what_ends_the_run_is_never_met_by_another_call(run: JsonRun, log: Log, error: Any) -> None:
    with pytest.raises(error):
        current.step("act", failing(log, 9, error, retries=5))
    assert len(log) == 1


def test_a_step_that_waits_for_its_next_call_ends_when_the_lease_is_lost(run: JsonRun, log: Log) -> None:
    act = failing(log, 9, retries=5, backoff=600, backoff_max=600)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(copy_context().run, current.step, "act", act)
        while not log:
            time.sleep(0.01)
        run.lost.set()
        with pytest.raises(LeaseLost):
            waiting.result(timeout=10)
    assert len(log) == 1


def test_the_pauses_double_up_to_a_bound_and_are_jittered() -> None:
    options = StepOptions(backoff=1, backoff_max=60)
    for tried, whole in ((1, 1), (2, 2), (5, 16), (7, 60), (1000, 60)):
        pauses = {options.pause(tried) for _ in range(50)}
        assert len(pauses) > 1
        assert all(whole / 2 <= pause <= whole for pause in pauses)


def test_steps_inside_are_read_when_the_step_around_them_is_called_again(
    bench: FlowBench, run: JsonRun, log: Log
) -> None:
    @step(retries=3, **QUICK)
    def outer() -> str:
        current.step("inner", log.do, "inner")
        if log.count("outer") < 2:
            raise ValueError(log.do("outer"))
        return "done"

    assert outer() == "done"
    assert log == ["inner", "outer", "outer"]


# --- in time -----------------------------------------------------------------------------------------------------


def test_a_function_that_takes_too_long_is_interrupted_in_the_main_thread(run: JsonRun, log: Log) -> None:
    @step(timeout=0.2, retries=1, **QUICK)
    def act() -> str:
        log.append("begun")
        if len(log) == 1:
            time.sleep(30)
        return "done"

    assert act() == "done"
    assert len(log) == 2


def test_the_time_of_a_step_inside_another_ends_only_that_step(run: JsonRun, log: Log) -> None:
    @step(timeout=0.1)
    def inner() -> None:
        time.sleep(30)

    @step(timeout=1)
    def outer() -> None:
        with pytest.raises(StepTimeout, match=r"outer/.*inner' took more than 0\.1 s"):
            inner()
        time.sleep(30)

    began = time.monotonic()
    with pytest.raises(StepTimeout, match=r"outer' took more than 1 s"):
        outer()
    assert time.monotonic() - began >= 1


@pytest.mark.parametrize("options", [{"timeout": 60}, {"timeout": 60, "retries": 5}, {"retries": 5}])
def test_the_time_of_a_step_ends_those_inside_it_whatever_time_they_have(
    run: JsonRun, log: Log, options: dict[str, Any]
) -> None:
    @step(**QUICK, **options)
    def inner() -> None:
        log.append("inner")
        time.sleep(60)

    @step(timeout=60)
    def between() -> None:
        inner()

    @step(timeout=0.2)
    def outer() -> None:
        between()

    of_the_test = signal.getitimer(signal.ITIMER_REAL)[0]
    with pytest.raises(StepTimeout, match=r"outer' took more than 0\.2 s"):
        outer()
    assert log == ["inner"]
    assert 0 <= of_the_test - signal.getitimer(signal.ITIMER_REAL)[0] < 60


def test_a_step_that_met_the_end_of_the_time_around_it_is_not_called_again(run: JsonRun, log: Log) -> None:
    @step(retries=5, **QUICK)
    def inner() -> None:
        log.append("inner")
        try:
            time.sleep(60)
        except StepTimeout as error:
            raise OSError from error

    with pytest.raises(OSError):
        step(timeout=0.2)(lambda: inner())()
    assert log == ["inner"]


def test_a_timer_of_the_body_rings_at_its_time_in_a_step_with_a_time_limit(run: JsonRun, log: Log) -> None:
    rung = threading.Event()

    @step(timeout=1)
    def act() -> None:
        assert rung.wait(30)
        log.append("rung")
        time.sleep(60)

    before = signal.signal(signal.SIGALRM, lambda *_: rung.set())
    of_the_test = signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
    try:
        with pytest.raises(StepTimeout, match=r"took more than 1 s"):
            act()
        rung.clear()
        assert rung.wait(30)
        assert signal.getitimer(signal.ITIMER_REAL)[1] == pytest.approx(0.1)
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *of_the_test)
    assert log == ["rung"]


def test_a_function_in_a_thread_cannot_have_a_time_limit(run: JsonRun, log: Log) -> None:
    @step(timeout=5)
    def act() -> None:
        log.append("begun")

    with ThreadPoolExecutor(1) as pool, pytest.raises(BadStep, match="runs in a thread, where Python cannot interrupt"):
        pool.submit(copy_context().run, act).result()
    assert log == []
    act()
    assert log == ["begun"]


def test_a_coroutine_that_takes_too_long_is_cancelled(run: JsonRun, log: Log) -> None:
    @step(timeout=0.05)
    async def act() -> None:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            log.append("cancelled")
            raise

    thread = threading.Thread(target=copy_context().run, args=(lambda: log.append(_error_of(act)),))
    thread.start()
    thread.join()
    assert log[0] == "cancelled"
    assert isinstance(log[1], StepTimeout)


def _error_of(act: Any) -> Any:
    try:
        asyncio.run(act())
    except Exception as error:
        return error


def test_a_timeout_of_the_function_itself_is_its_own(run: JsonRun) -> None:
    async def act() -> None:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine") as raised:
        asyncio.run(current.step("act", act))
    assert not isinstance(raised.value, StepTimeout)


# --- refused where it is written ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"retires": 3}, "step() has no option retires. Did you mean retries?"),
        ({"retries": -1}, "retries"),
        ({"retries": 1.5}, "retries"),
        ({"retries": True}, "retries"),
        ({"retries": 10**400}, "step(retries=...) must be at most 2147483647"),
        ({"backoff": -1}, "backoff"),
        ({"backoff": 10**400}, "step(backoff=...) must be at most 3162240000 seconds"),
        ({"backoff": None}, "step(backoff=...) must be a finite number of seconds, not None"),
        ({"backoff_max": None}, "step(backoff_max=...)"),
        ({"backoff_max": 1e300}, "step(backoff_max=...) must be at most"),
        ({"timeout": True}, "step(timeout=...) must be a finite number"),
        ({"timeout": float("inf")}, "step(timeout=...) must be a finite number"),
        ({"backoff_max": float("nan")}, "backoff_max"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": "5"}, "timeout"),
        ({"retry_for": ()}, "retry_for"),
        ({"retry_for": 5}, "retry_for"),
        ({"retry_for": (BaseException,)}, "retry_for"),
        ({"retry_for": "OSError"}, "retry_for"),
        ({"name": ""}, "name"),
        ({"name": "x" * 256}, "name"),
        ({"key": "url"}, "key"),
        ({"key": "args.ulr"}, "no such argument. Did you mean url?"),
    ],
)
def test_an_option_that_cannot_work_is_refused(options: dict[str, Any], told: str) -> None:
    def act(url: str) -> None: ...

    with pytest.raises(SettingError) as refused:
        step(**options)(act)
    assert told in str(refused.value)


def test_what_is_no_function_or_gives_no_value_is_refused() -> None:
    def generator() -> Any:
        yield 1

    for target in (generator, 5, Site, staticmethod(generator)):
        with pytest.raises(SettingError):
            step(target)


def test_a_call_whose_key_finds_what_no_other_process_would_find_is_refused(run: JsonRun, log: Log) -> None:
    for value, told in ((object(), "object has no value"), ([log, print], "builtin_function_or_method has no value")):
        with pytest.raises(BadStep, match=rf"the step fetch: what step\(key='args\.url'\) finds is no key: {told}"):
            fetch(log, value)  # type: ignore[arg-type]
    assert log == []


def test_keys_of_other_kinds_are_other_keys_and_may_be_of_any_length(bench: FlowBench, run: JsonRun, log: Log) -> None:
    keys: list[Any] = [1, "1", 1.0, True, None, (1, "1"), UUID(int=1), "https://example.com/" + "x" * 3000]
    for _ in range(2):
        for key in keys:
            assert fetch(log, key) == str(key)
        run = begin(bench, taken_over(bench, run.claim))
    assert log == keys
