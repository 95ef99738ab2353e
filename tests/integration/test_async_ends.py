"""What a coroutine has running when its run ends, ends with it; what outlives the run does nothing more."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery.contrib.testing.worker import start_worker
from celery.exceptions import Ignore, Reject

from argus_celery import current, durable, step
from argus_celery.errors import BadStep, LeaseLost, NoClaim, StoreUnavailable
from argus_celery.records import TaskState
from argus_celery.store import reports, setup
from argus_celery.store.steps import finished
from tests.integration.embedded import Shop, shop, until

Making = Callable[..., Any]


@pytest.fixture(scope="module")
def at_work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shop, Any]]:
    """A worker for all tests of this file."""
    store = f"sqlite:///{tmp_path_factory.mktemp('ends') / 'store.db'}"
    made = shop(store, f"argus+{store}", lease_ttl=60)  # no run is to lapse, on however busy a machine
    setup.init(made.argus.runtime.store)
    with start_worker(made.app, pool="threads", concurrency=4, perform_ping_check=False, shutdown_timeout=60) as worker:
        yield made, worker
    made.argus.runtime.store.dispose()


@pytest.fixture
def made(at_work: tuple[Shop, Any]) -> Shop:
    at_work[0].log = []  # a thread that a test has left behind writes into that of its own
    return at_work[0]


@pytest.fixture
def task(at_work: tuple[Shop, Any]) -> Making:
    """Make a durable task which the worker knows."""
    made, worker = at_work

    def make(body: Callable[..., Any], **options: Any) -> Any:
        name = f"shop.{body.__name__}.{len(made.app.tasks)}"
        task = durable(made.app.task(shared=False, name=name, **options)(body))
        worker.consumer.update_strategies()
        return task

    return make


def suspended(made: Shop, task_id: str) -> None:
    until(lambda: made.task(task_id).suspended, 60, lambda: made.task(task_id))


def outcomes(made: Shop, task_id: str) -> list[str]:
    return [str(one.outcome) for one in reports.attempt_rows(made.argus.runtime.store, task_id)]


def steps(made: Shop, task_id: str) -> list[str]:
    _, found = made.argus.runtime.store.statement(lambda connection: finished(connection, task_id, 20))
    return [one.name for one in found]


class Worker:
    """Does two things in two steps; the first is under way when ``begun`` is set."""

    def __init__(self, made: Shop) -> None:
        self.made = made
        self.begun: asyncio.Event | None = None

    async def do(self, what: str) -> str:
        self.made.log.append(what)
        await asyncio.sleep(0)
        return what

    async def hang(self) -> None:
        self.made.log.append("hangs")
        await asyncio.sleep(600)

    async def work(self) -> None:
        try:
            await current.step("first", self.do, "first")
            if current.attempt == 1:
                await current.step("hangs", self.hang)
            await current.step("second", self.do, "second")
        except asyncio.CancelledError:
            self.made.log.append(("cancelled", bool(self.made.lease(str(current.task_id)).holder)))
            raise


# --- beside a wait ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("how", ["gather", "group", "task", "shield", "exceptions"])
def test_what_runs_beside_a_wait_is_cancelled_and_done_in_the_run_behind_it(made: Shop, task: Making, how: str) -> None:
    worker = Worker(made)

    async def wait() -> None:
        while current.attempt == 1 and "hangs" not in made.log:
            await asyncio.sleep(0.01)
        await current.sleep(1)

    async def both() -> int:
        if how == "gather":
            await asyncio.gather(wait(), worker.work())
        elif how == "group":
            async with asyncio.TaskGroup() as group:
                group.create_task(wait())
                group.create_task(worker.work())
        elif how == "task":
            beside = asyncio.create_task(worker.work())
            await wait()
            await beside
        elif how == "shield":
            beside = asyncio.create_task(worker.work())
            await asyncio.gather(wait(), asyncio.shield(beside))
        else:
            beside = asyncio.create_task(worker.work())
            await asyncio.gather(wait(), return_exceptions=True)
            await current.step("behind", worker.do, "behind")
            await beside
        return current.attempt

    result = task(both).delay()
    assert result.get(timeout=60) == 2
    assert made.log[:3] == ["first", "hangs", ("cancelled", True)]
    behind = ["behind"] if how == "exceptions" else []
    assert sorted(made.log[3:]) == sorted(["second", *behind])
    assert outcomes(made, result.id) == ["suspended", "succeeded"]


def test_what_is_cancelled_may_tidy_up_and_is_waited_for(made: Shop, task: Making) -> None:
    async def beside() -> None:
        try:
            await asyncio.sleep(600)
        finally:
            later = asyncio.create_task(asyncio.sleep(600))
            await asyncio.sleep(0.1)
            made.log.append(("tidy", bool(made.lease(str(current.task_id)).holder), later.done()))

    async def body() -> None:
        running = asyncio.create_task(beside())
        await asyncio.sleep(0)
        await current.sleep(days=1)
        await running

    result = task(body).delay()
    suspended(made, result.id)
    assert made.log == [("tidy", True, False)]


def test_behind_a_wait_that_was_reached_no_step_begins(made: Shop, task: Making) -> None:
    """Though ``gather(return_exceptions=True)`` has swallowed the end of the run, and none in a ``finally``."""
    worker = Worker(made)

    async def body() -> list[str]:
        try:
            await asyncio.gather(current.sleep(1), return_exceptions=True)
            made.log.append(current.attempt)
            sent = await current.step("send", worker.do, "sent")
            return [sent, *[item async for item in current.each(["a"])]]
        finally:
            await current.step("tidy", worker.do, "tidy")

    result = task(body).delay()
    assert result.get(timeout=60) == ["sent", "a"]
    assert made.log == [1, 2, "sent", "tidy"]


# --- beside other ends ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("end", ["returns", "raises", "retries", "ignores"])
def test_what_a_body_has_left_running_is_cancelled_before_its_run_is_over(
    made: Shop, task: Making, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Worker(made)

    async def body(self: Any) -> str:
        if self.request.retries:
            return "retried"
        running = asyncio.create_task(worker.work(), name="work")
        while "hangs" not in made.log:
            await asyncio.sleep(0.01)
        assert not running.done()
        if end == "raises":
            raise ValueError(end)
        if end == "retries":
            raise self.retry(countdown=0)
        if end == "ignores":
            raise Ignore
        return "done"

    result = task(body, bind=True).delay()
    with caplog.at_level(logging.WARNING):
        assert made.ended(result.id, 60).state is (TaskState.FAILED if end == "raises" else TaskState.SUCCEEDED)
    assert made.log == ["first", "hangs", ("cancelled", True)]
    told = [record.getMessage() for record in caplog.records if "which is cancelled: work" in record.getMessage()]
    assert len(told) == (1 if end == "returns" else 0)


def test_what_begins_in_an_empty_context_outlives_the_body(made: Shop, task: Making) -> None:
    """A client that is made once and has tasks of its own."""
    clients: list[asyncio.Task[Any]] = []

    async def client() -> None:
        while "stop" not in made.log:
            await asyncio.sleep(0.01)
        made.log.append("stopped")

    async def body() -> bool:
        if not clients:
            clients.append(asyncio.create_task(client(), context=contextvars.Context()))
        return clients[0].done()

    kept = task(body)
    results = [kept.delay(), kept.delay()]
    assert [one.get(timeout=60) for one in results] == [False, False]
    made.log.append("stop")
    made.until_logged("stopped")


# --- threads ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["coroutine", "function"])
@pytest.mark.parametrize("end", ["waits", "fails", "succeeds"])
def test_a_thread_that_outlives_its_run_does_no_step_any_more(made: Shop, task: Making, kind: str, end: str) -> None:
    is_over, told = threading.Event(), threading.Event()

    @step
    def decorated() -> None:
        made.log.append("decorated")

    def late() -> None:
        items = iter(current.each(["a", "b"], batch=10))
        next(items)
        made.log.append("begun")
        is_over.wait(60)
        for call in (
            lambda: current.step("late", made.log.append, "late"),
            decorated,
            lambda: next(iter(current.each(["c"]))),
            lambda: next(items),
            lambda: current.sleep(60),
        ):
            try:
                call()
            except NoClaim as error:
                made.log.append(str(error))
        told.set()

    def begun() -> None:
        threading.Thread(target=contextvars.copy_context().run, args=[late], daemon=True).start()
        until(lambda: "begun" in made.log)
        if end == "fails":
            raise ValueError(end)

    def function() -> None:
        begun()
        if end == "waits":
            current.sleep(days=1)

    async def coroutine() -> None:
        begun()
        if end == "waits":
            await current.sleep(days=1)

    result = task({"function": function, "coroutine": coroutine}[kind]).delay()
    if end == "waits":
        suspended(made, result.id)
    else:
        made.ended(result.id, 60)
    is_over.set()
    assert told.wait(60)
    assert len(made.log) == 6
    assert all(f"{result.id}: " in line and "over" in line for line in made.log[1:5]), made.log


@pytest.mark.parametrize("end", ["waits", "succeeds"])
def test_a_step_in_a_thread_that_outlives_its_run_is_not_kept_and_says_why(made: Shop, task: Making, end: str) -> None:
    is_over, told = threading.Event(), threading.Event()

    def slow() -> None:
        made.log.append("begun")
        is_over.wait(60)

    def beside() -> None:
        try:
            current.step("slow", slow)
        except NoClaim as error:
            made.log.append(str(error))
        told.set()

    async def body() -> None:
        if current.attempt == 1:
            running = asyncio.create_task(asyncio.to_thread(beside))
            while "begun" not in made.log:
                await asyncio.sleep(0.01)
            assert not running.done()
            if end == "waits":
                await current.sleep(days=1)

    result = task(body).delay()
    if end == "waits":
        suspended(made, result.id)
    else:
        made.ended(result.id, 60)
    is_over.set()
    assert told.wait(60)
    assert "the record of slow comes too late" in made.log[1]
    assert "slow" not in steps(made, result.id)


def test_a_step_is_not_tried_again_behind_the_end_of_its_run(made: Shop, task: Making) -> None:
    is_over, told = threading.Event(), threading.Event()

    @step(retries=5, backoff=0.01)
    def failing() -> None:
        made.log.append("tried")
        is_over.wait(60)
        raise ValueError

    def beside() -> None:
        with pytest.raises(NoClaim, match="comes too late"):
            failing()
        told.set()

    def body() -> None:
        threading.Thread(target=contextvars.copy_context().run, args=[beside], daemon=True).start()
        until(lambda: made.log)

    result = task(body).delay()
    made.ended(result.id, 60)
    is_over.set()
    assert told.wait(60)
    assert made.log == ["tried"]


# --- an end in a task group -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("options", [{}, {"autoretry_for": (Exception,), "max_retries": 1, "default_retry_delay": 0}])
def test_an_end_in_a_task_group_is_that_of_the_run(made: Shop, task: Making, options: dict[str, Any]) -> None:
    async def body(self: Any, end: str) -> int:
        async def part() -> None:
            made.log.append(end)
            if end == "retry" and self.request.retries == 0:
                raise self.retry(countdown=0)
            if end == "ignore":
                raise Ignore
            if end == "reject":
                raise Reject("no")
            if end in ("lost", "away") and made.log.count(end) == 1:
                raise {"lost": LeaseLost, "away": StoreUnavailable}[end](end)

        async with asyncio.TaskGroup() as group:
            group.create_task(part())
            group.create_task(asyncio.sleep(0))
        return int(self.request.retries)

    expected = {
        "retry": (["retried", "succeeded"], TaskState.SUCCEEDED),
        "ignore": (["succeeded"], TaskState.SUCCEEDED),
        "reject": (["retried", "failed"] if options else ["failed"], TaskState.FAILED),
        "away": (["retried" if options else "released", "succeeded"], TaskState.SUCCEEDED),
    }
    ending = task(body, bind=True, **options)
    results = {end: ending.delay(end) for end in expected}
    ended = {end: made.ended(result.id, 60).state for end, result in results.items()}
    assert {end: (outcomes(made, result.id), ended[end]) for end, result in results.items()} == expected


def test_an_error_in_a_task_group_beside_an_ignore_fails_the_run(made: Shop, task: Making) -> None:
    async def part(error: BaseException) -> None:
        raise error

    async def body() -> None:
        async with asyncio.TaskGroup() as group:
            for error in (Ignore(), ValueError("real")):
                group.create_task(part(error))

    result = task(body).delay()
    assert "real" in str(made.ended(result.id, 60).error)


# --- called, and not awaited ------------------------------------------------------------------------------------------
def test_what_a_coroutine_has_called_and_not_awaited_fails_the_run(made: Shop, task: Making) -> None:
    @step(name="decorated")
    async def decorated() -> None:
        made.log.append("done")

    kept: list[Any] = []

    async def body(kind: str) -> None:
        if kind == "step":
            current.step("step", decorated)
        elif kind == "decorated":
            decorated()
        elif kind == "wait":
            current.wait_for("wait")
        else:
            kept.append(current.step("kept", decorated))

    forgetful = task(body)
    results = {kind: forgetful.delay(kind) for kind in ("step", "decorated", "wait", "kept")}
    ended = {kind: made.ended(result.id, 60) for kind, result in results.items()}
    for kind, one in ended.items():
        assert one.state is TaskState.FAILED
        assert "not awaited" in str(one.error)
        assert kind in str(one.error)
    assert made.log == []


def test_what_is_cancelled_before_it_begins_gives_its_name_back_and_fails_nothing(made: Shop, task: Making) -> None:
    worker = Worker(made)

    async def body() -> str:
        for call in (current.sleep(days=1), current.step("fetch", worker.do, "a"), current.wait_for("never")):
            begun = asyncio.create_task(call)
            begun.cancel()
            await asyncio.wait([begun])
        current.step("fetch", worker.do, "a").close()
        return str(await current.step("fetch", worker.do, "a"))

    result = task(body).delay()
    assert result.get(timeout=60) == "a"
    assert steps(made, result.id) == ["fetch"]


# --- waits ------------------------------------------------------------------------------------------------------------
def test_waits_side_by_side_are_numbered_in_the_order_of_their_calls(made: Shop, task: Making) -> None:
    """Whichever of them begins first, and however long the store takes to look for each."""

    async def later(call: Any) -> Any:
        await asyncio.sleep(0.05)
        return await call

    async def body() -> None:
        first, second, third = (current.sleep(seconds) for seconds in (1.2, 1.1, 1))
        await asyncio.gather(later(first), second, later(third))

    result = task(body).delay()
    assert made.ended(result.id, 60).state is TaskState.SUCCEEDED
    assert steps(made, result.id) == ["sleep#2", "sleep", "sleep#3"]


def test_a_short_sleep_without_a_claim_is_awaited_too(made: Shop, task: Making) -> None:
    async def nap() -> str:
        await current.sleep(seconds=0.01)
        await asyncio.gather(current.sleep(0.01), current.sleep())
        return "awake"

    napping = task(nap)
    assert asyncio.run(napping()) == napping.apply().get() == "awake"

    async def outer() -> str:
        return str(napping.apply().get())

    result = task(outer).delay()
    assert result.get(timeout=60) == "awake"


def test_a_wait_that_ends_the_run_is_refused_inside_a_timeout_of_asyncio(made: Shop, task: Making) -> None:
    waits: dict[str, Callable[[], Any]] = {
        "event": lambda: current.wait_for("x"),
        "long event": lambda: current.wait_for("x", timeout=3600),
        "sleep": lambda: current.sleep(days=1),
        "instant": lambda: current.sleep_until(made.app.now()),
    }

    async def waiting(wait: str, how: str) -> None:
        if how == "wait_for":
            await asyncio.wait_for(waits[wait](), 600)
        elif how == "timeout":
            async with asyncio.timeout(600):
                await waits[wait]()
        else:
            async with asyncio.timeout(600):
                await asyncio.gather(waits[wait]())

    async def body() -> list[str]:
        for wait in waits:
            for how in ("wait_for", "timeout", "around tasks"):
                with pytest.raises(BadStep, match="inside asyncio") as refused:
                    await waiting(wait, how)
                made.log.append(str(refused.value))
        return made.log

    result = task(body).delay()
    told = result.get(timeout=60)
    assert len(told) == 12
    assert all(result.id in line and "timeout=" in line for line in told)


def test_a_timeout_of_asyncio_that_is_over_is_in_no_waits_way(made: Shop, task: Making) -> None:
    async def body() -> str:
        await asyncio.wait_for(asyncio.sleep(0), 30)
        async with asyncio.timeout(30):
            await current.sleep(0.01)
            beside = asyncio.create_task(asyncio.sleep(0.01))
        await asyncio.wait([beside], timeout=60)
        await current.sleep(1)
        return "awake"

    assert task(body).delay().get(timeout=60) == "awake"


def test_a_brief_wait_inside_a_shorter_timeout_of_asyncio_is_cut_short(made: Shop, task: Making) -> None:
    async def body() -> Any:
        for call in (current.wait_for("x", timeout=0.9), current.sleep(0.9)):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(call, 0.01)
        return await current.wait_for("x", timeout=0.9, default="none")

    result = task(body).delay()
    assert result.get(timeout=60) == "none"
    assert outcomes(made, result.id) == ["succeeded"]


def test_a_wait_that_is_cancelled_while_the_store_is_looked_at_ends_no_run(made: Shop, task: Making) -> None:
    async def body() -> str:
        waits = asyncio.create_task(current.sleep(days=1))
        await asyncio.sleep(0)  # it is asking the store by now
        waits.cancel()
        await asyncio.wait([waits])
        assert waits.cancelled()
        return "not waited"

    result = task(body).delay()
    assert result.get(timeout=60) == "not waited"
