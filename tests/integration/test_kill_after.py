"""``kill_after``: a task that keeps what it has done comes through every kill; another is told where it does not."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from celery import Celery, chain

from argus_celery import Argus, current
from argus_celery.testing.apart import ApartError, apart
from argus_celery.testing.killing import Killing
from argus_celery.testing.ledger import Ledger

_numbers = itertools.count(1)

Make = Callable[..., Any]

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def argus_store_url(request: pytest.FixtureRequest) -> str:
    """A test that asks for ``store_url`` is run on each database."""
    asked = "store_url" if "store_url" in request.fixturenames else "sqlite_store_url"
    return str(request.getfixturevalue(asked))


@pytest.fixture
def app() -> Iterator[Celery]:
    """Configured for servers that are not there."""
    made = Celery(f"kill{next(_numbers)}", broker="redis://nowhere.invalid", set_as_current=False)
    made.conf.task_always_eager = True
    Argus(made, store="postgresql+psycopg://nowhere.invalid/shop")
    yield made
    made.close()


@pytest.fixture
def task(app: Celery) -> Make:
    """Make a durable task of the app."""

    def decorate(function: Any = None, **options: Any) -> Any:
        make = partial(app.task, shared=False, **options)
        return Argus.durable(make(function)) if function else lambda given: Argus.durable(make(given))

    return decorate


@pytest.mark.usefixtures("store_url")
def test_what_is_done_in_steps_is_done_once_whichever_point_it_is_killed_after(
    kill_after: Killing, ledger: Ledger, task: Make
) -> None:
    @task
    def mail(order: int) -> None:
        current.step("mail", ledger.write, "mail", order)

    @task
    def charge(order: int) -> int:
        current.step("charge", ledger.write, "charge", order)
        for parcel in current.each(["a", "b"]):
            ledger.write("pack", parcel)
        with current.transaction():
            current.step("note", int)
            mail.delay(order + 1)
        mail.delay(order)
        return order * 2

    report = kill_after(charge, [17])
    kinds = ["enqueue", "step", "item", "item", "transaction", "enqueue", "complete", *["step", "complete"] * 2]
    assert [point.kind for point in report.points] == kinds
    assert [trial.killed_after for trial in report.trials] == list(report.points)
    assert report.result == 34
    assert ledger.effects[:3] == [("charge", 17), ("pack", "a"), ("pack", "b")]
    assert sorted(ledger.effects[3:]) == [("mail", 17), ("mail", 18)]


def test_a_coroutine_task_is_killed_at_its_points_too(kill_after: Killing, ledger: Ledger, task: Make) -> None:
    async def charge(order: int) -> int:
        ledger.write("charge", order)
        return order * 2

    @task
    async def charging(order: int) -> int:
        value = await current.step("charge", charge, order)
        async for parcel in current.each(["a", "b"], name="parcels"):
            ledger.write("pack", parcel)
        return value

    report = kill_after(charging, [17])
    assert [point.kind for point in report.points] == ["enqueue", "step", "item", "item", "complete"]
    assert report.result == 34


def test_an_effect_that_comes_twice_is_told_with_the_point(kill_after: Killing, ledger: Ledger, task: Make) -> None:
    @task
    def careless() -> None:
        ledger.write("mail", "ann")
        current.step("charge", ledger.write, "charge")

    with pytest.raises(AssertionError) as told:
        kill_after(careless)
    assert str(told.value).splitlines() == [
        "a kill has made a difference:",
        "killed after step charge (point 2 of 3): the effect ('mail', 'ann') happened twice, expected once",
    ]


def test_between_an_effect_and_its_record_only_a_key_helps(kill_after: Killing, ledger: Ledger, task: Make) -> None:
    @task
    def with_key() -> None:
        current.step("charge", ledger.write, "charge", key=current.task_id)

    @task
    def without_key() -> None:
        current.step("charge", ledger.write, "charge")

    assert [str(point) for point in kill_after(with_key, points="effect").points] == ["effect charge"]
    with pytest.raises(AssertionError, match=r"killed after effect charge .*happened twice, expected once"):
        kill_after(without_key, points="effect")


def test_a_retry_a_chain_and_other_queues_are_gone_through_without_waiting(
    kill_after: Killing, ledger: Ledger, app: Celery, task: Make
) -> None:
    @task(bind=True, max_retries=3)
    def shaky(self: Any) -> str:
        current.step(f"try {self.request.retries}", ledger.write, "try", self.request.retries)
        if self.request.retries < 2:
            raise self.retry(countdown=24 * 3600)
        return "done"

    @task
    def after(value: str) -> str:
        return value + " and after"

    began = time.monotonic()
    report = kill_after(lambda: chain(shaky.s(), after.s().set(queue="others")).delay(), app=app, points="retry")
    assert time.monotonic() - began < 3600
    assert [point.kind for point in report.points] == ["retry", "retry"]
    assert {state for _, state, _ in report.undisturbed.tasks} == {"succeeded"}
    assert ledger.effects == [("try", 0), ("try", 1), ("try", 2)]


def test_what_goes_on_only_at_a_word_is_given_it_by_idle(
    kill_after: Killing, ledger: Ledger, app: Celery, task: Make
) -> None:
    @task
    def paid() -> None:
        ledger.write("paid")

    def start() -> Any:
        project = Argus.of(app).project("slow")
        project.pause()
        return project.enqueue(paid.s(), key="once")

    with pytest.raises(AssertionError, match=r"nothing goes on by itself.*paid\[.*idle="):
        kill_after(start, app=app)
    report = kill_after(start, app=app, idle=lambda: Argus.of(app).project("slow").resume())
    assert len(report.trials) == 2


def test_a_sleep_of_days_and_an_event_are_gone_through(
    kill_after: Killing, ledger: Ledger, app: Celery, task: Make
) -> None:
    @task
    def onboard() -> Any:
        current.step("welcome", ledger.write, "welcome")
        current.sleep(days=3)
        current.step("remind", ledger.write, "remind")
        return current.wait_for("approved")

    def start() -> Any:
        return argus.project("new").enqueue(onboard.s(), key="once")

    def approve() -> None:
        if ledger.count("remind"):
            argus.project("new").send("approved", "by Ann")

    argus = Argus.of(app)
    assert argus is not None
    report = kill_after(start, app=app, points="wait", idle=approve)
    assert [str(point) for point in report.points] == ["wait sleep", "wait wait approved"]
    assert report.result == "by Ann"
    assert ledger.effects == [("welcome",), ("remind",)]


def test_a_state_of_ones_own_is_compared_and_prepared_for_each_life(
    kill_after: Killing, tmp_path: Path, task: Make
) -> None:
    account = tmp_path / "account"

    @task
    def spend() -> None:
        account.write_text(str(int(account.read_text()) - 1))
        current.step("noted", int)

    def prepare() -> None:
        account.write_text("10")

    assert kill_after(spend, points="complete", prepare=prepare, state=account.read_text).undisturbed.state == "9"
    with pytest.raises(AssertionError, match=r"killed after step noted .*the state is '8', expected '9'"):
        kill_after(spend, points="step", prepare=prepare, state=account.read_text)


def test_a_task_that_may_not_lose_a_worker_is_told(kill_after: Killing, app: Celery) -> None:
    @Argus.durable(max_losses=1)
    @app.task(shared=False)
    def fragile() -> None:
        current.step("one", int)

    with pytest.raises(
        AssertionError,
        match=r"killed after step one .*the task .*fragile ended dead with TaskDead.*, expected succeeded with None",
    ):
        kill_after(fragile, points="step")


def test_a_setting_may_be_given(kill_after: Killing, task: Make) -> None:
    @task
    def fragile() -> None:
        current.step("one", int)

    assert kill_after(fragile, points="step").trials
    with pytest.raises(AssertionError, match="ended dead with TaskDead"):
        kill_after(fragile, points="step", max_losses=1)


def test_of_many_points_some_may_be_chosen(kill_after: Killing, task: Make) -> None:
    @task
    def long() -> None:
        for number in current.each(range(20)):
            del number

    report = kill_after(long, points="item", most=3)
    assert len(report.points) == 20
    assert [str(trial.killed_after) for trial in report.trials] == ["item each[0]", "item each[10]", "item each[19]"]


def test_who_hangs_is_ended_and_its_output_shown(tmp_path: Path) -> None:
    def hangs() -> None:
        print("here it hangs")
        time.sleep(600)

    with pytest.raises(ApartError, match=r"(?s)did not end within 5 s.*here it hangs"):
        apart(hangs, tmp_path, timeout=5)


def test_work_that_comes_to_no_point_proves_nothing(kill_after: Killing, app: Celery, task: Make) -> None:
    def nothing() -> None:
        pass

    plain = app.task(nothing, name="tests.plain", shared=False)
    with pytest.raises(AssertionError, match=r"nothing to be killed after.*Is the task durable"):
        kill_after(plain)
    with pytest.raises(AssertionError, match="no point of the kinds transaction"):
        kill_after(task(nothing), points="transaction")


def test_a_mock_is_the_function_of_a_step(kill_after: Killing, ledger: Ledger, task: Make) -> None:
    mock = MagicMock(side_effect=lambda order: ledger.write("charge", order) or "receipt")

    @task
    def charge(order: int) -> Any:
        return current.step("charge", mock, order)

    assert kill_after(charge, [17], points="step").result == "receipt"


def test_a_value_or_an_effect_that_cannot_be_kept_is_told_and_does_not_pass_for_a_result(
    kill_after: Killing, ledger: Ledger, task: Make
) -> None:
    """The task fails in each life alike."""

    @task(name="tests.mocked")
    def mocked() -> None:
        current.step("charge", lambda: MagicMock(name="receipt"))

    @task(name="tests.effect")
    def effect() -> None:
        ledger.write("mail", MagicMock(name="ann"))

    for bad, what in ((mocked, "BadStep.*the step 'charge' has run"), (effect, "BadEffect.*is what JSON holds")):
        with pytest.raises(AssertionError, match=f"as it is written, killed or not:\n{bad.name}: {what}"):
            kill_after(bad, points="complete")


def test_a_state_that_no_other_process_can_be_given_is_refused(kill_after: Killing, task: Make) -> None:
    @task
    def nothing() -> None:
        pass

    with pytest.raises(AssertionError, match=r"state\(\) has returned <MagicMock.*return\s+plain values"):
        kill_after(nothing, points="complete", state=MagicMock())


def test_an_unknown_kind_of_point_is_refused(kill_after: Killing, task: Make) -> None:
    @task
    def nothing() -> None:
        pass

    with pytest.raises(ValueError, match=r"there is no 'steps'\. Did you mean step\?"):
        kill_after(nothing, points="steps")


def test_the_app_is_left_as_it_was(kill_after: Killing, app: Celery, task: Make) -> None:
    @task
    def nothing() -> None:
        pass

    before = dict(app.conf)
    kill_after(nothing, points="complete")
    assert dict(app.conf) == before
    assert app.conf.task_always_eager
