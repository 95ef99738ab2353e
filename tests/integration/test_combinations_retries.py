"""A retry is the same row with a new message and due time. Retries, losses and deliveries are three counters."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import signals
from celery.exceptions import Retry

from tests.integration.combinations import FAILS, RUN_AGAIN, SUCCEEDS, Place, row
from tests.integration.embedded import until

pytestmark = pytest.mark.redis

TITLE = "Retries"


class Flaky(Exception):
    pass


class Hopeless(Flaky):
    pass


@row("`self.retry(countdown=)`", "runs again after the delay; `retries` is one more")
def test_a_retry_runs_again_after_its_countdown(place: Place) -> None:
    started = []

    def body(self: Any) -> str:
        started.append(time.monotonic())
        if self.request.retries < 2:
            raise self.retry(countdown=0.4)
        return "done"

    seen = place.run(place.task(body))
    assert (seen.runs, seen.value) == ([0, 1, 2], "done")
    assert seen.signals == RUN_AGAIN * 2 + SUCCEEDS
    assert seen.handlers == ["before_start", "on_retry"] * 2 + ["before_start", "on_success", "after_return SUCCESS"]
    assert started[1] - started[0] >= 0.4
    if place.durable:
        assert (place.ended(seen).retries, place.ended(seen).losses) == (2, 0)


@row("`self.retry(eta=)`", "runs again at that instant, not before")
def test_a_retry_runs_again_at_its_eta(place: Place) -> None:
    started = []

    def body(self: Any) -> None:
        started.append(datetime.now(UTC))
        if self.request.retries == 0:
            raise self.retry(eta=started[0] + timedelta(seconds=0.6))

    seen = place.run(place.task(body))
    assert seen.runs == [0, 1]
    assert started[1] >= started[0] + timedelta(seconds=0.6)


@row(
    "a retry that is due later than a sweep",
    "its message waits unacked in a worker's memory until it is due",
    "its row waits in the store; no worker and no broker holds a message before it is due",
    "a worker's memory and a visibility timeout are where delayed messages are lost and doubled",
)
def test_where_a_long_retry_waits(place: Place) -> None:
    def body(self: Any) -> None:
        if self.request.retries == 0:
            raise self.retry(countdown=3600)

    seen = place.send(place.task(body))
    place.wait(seen, lambda: seen.signals == RUN_AGAIN)
    assert seen.state == "RETRY"
    where = place.either(ordinary="a worker", durable="the store")
    if where == "a worker":
        until(lambda: seen.result.id in place.scheduled())
    else:
        assert not place.scheduled()
        assert place.lease(seen).holder == ""
    place.app.control.revoke(seen.result.id)


@row("`self.retry(args=, kwargs=)`", "the next run has the new arguments")
def test_a_retry_with_other_arguments(place: Place) -> None:
    def body(self: Any, number: int, word: str = "") -> list[Any]:
        if self.request.retries == 0:
            raise self.retry(args=(number + 1,), kwargs={"word": "again"}, countdown=0)
        return [number, word]

    assert place.run(place.task(body), 1).value == [2, "again"]


@row("`self.retry(queue=, priority=)`", "the next run comes through that queue, with that priority")
def test_a_retry_into_another_queue(place: Place) -> None:
    def body(self: Any) -> list[Any]:
        if self.request.retries == 0:
            raise self.retry(queue="other", priority=4, countdown=0)
        return [self.request.delivery_info["routing_key"], self.request.delivery_info["priority"]]

    place.consumer.add_task_queue("other")
    assert place.run(place.task(body), priority=2).value == ["other", 4]


@row("`self.retry(exc=)` beyond `max_retries`", "fails with that error, after `max_retries` + 1 runs")
def test_a_retry_with_an_error_ends_with_it(place: Place) -> None:
    def body(self: Any) -> None:
        raise self.retry(exc=Flaky("no"), countdown=0)

    seen = place.run(place.task(body, max_retries=2))
    assert (seen.runs, seen.state, seen.error) == ([0, 1, 2], "FAILURE", "Flaky")
    assert seen.signals == RUN_AGAIN * 2 + FAILS
    assert seen.handlers[-3:] == ["before_start", "on_failure", "after_return FAILURE"]


@row("`self.retry()` beyond `max_retries`", "fails with `MaxRetriesExceededError`")
def test_a_retry_without_an_error_ends_with_max_retries_exceeded(place: Place) -> None:
    def body(self: Any) -> None:
        raise self.retry(countdown=0)

    seen = place.run(place.task(body, max_retries=1))
    assert (seen.runs, seen.state, seen.error) == ([0, 1], "FAILURE", "MaxRetriesExceededError")


@row("`max_retries=None`, `self.retry(max_retries=)`", "no limit; a limit for this call")
def test_the_limit_of_retries_can_be_lifted_and_set_per_call(place: Place) -> None:
    def body(self: Any, limit: int | None) -> str:
        if self.request.retries < 5:
            raise self.retry(countdown=0, max_retries=limit)
        return "six runs"

    task = place.task(body, max_retries=None)
    assert place.run(task, None).value == "six runs"
    assert place.run(task, 1).runs == [0, 1]


@row(
    "`self.retry(throw=False)`, then return",
    "SUCCESS with this value and its callbacks, and then those of the next run too",
    "the run ends as a retry; value, callbacks and `task_success` come from the last run",
    "a task has one outcome, and its callbacks happen once",
)
def test_a_run_that_returns_after_asking_for_a_retry(place: Place) -> None:
    def body(self: Any) -> str:
        if self.request.retries == 0:
            self.retry(countdown=0, throw=False)
        return f"run {self.request.retries}"

    after = place.logger("after")
    seen = place.send(place.task(body), link=after.s())
    place.wait(seen, lambda: seen.signals.count("postrun SUCCESS") == place.either(ordinary=2, durable=1))
    until(lambda: ("after", "run 1") in _calls(place))
    both = [("after", "run 0"), ("after", "run 1")]
    assert _calls(place) == place.either(ordinary=both, durable=both[1:])
    first = place.either(ordinary=SUCCEEDS, durable=RUN_AGAIN)
    assert seen.signals == first + SUCCEEDS


def _calls(place: Place) -> list[Any]:
    return [one for one in place.log if isinstance(one, tuple)]


@row(
    "`self.retry(throw=False)`, then an error",
    "FAILURE is stored and errbacks are called, although another run follows",
    "the run ends as a retry, whose reason is the error; no errback",
    "a task has one outcome, and its errbacks happen once",
)
def test_a_run_that_fails_after_asking_for_a_retry(place: Place) -> None:
    def body(self: Any) -> str:
        if self.request.retries == 0:
            self.retry(countdown=0, throw=False)
            raise Flaky("after all")
        return "done"

    failed = place.logger("failed")
    seen = place.send(place.task(body), link_error=failed.s())
    place.wait(seen, lambda: "postrun SUCCESS" in seen.signals and len(seen.signals) == 6)
    first = place.either(ordinary=FAILS, durable=RUN_AGAIN)
    assert seen.signals == first + SUCCEEDS
    if place.durable:
        assert place.ended(seen).retries == 1
        assert not _calls(place)
    else:
        until(lambda: _calls(place))


@row(
    "`raise Retry(...)` by hand",
    "RETRY is stored and `task_retry` sent, but nothing is sent to the broker: the task never runs again",
    "what `self.retry()` would do with its `when` (else `default_retry_delay`), `exc` and `sig`; `max_retries` holds",
    "a task that has not ended has to be due again",
)
def test_a_retry_that_is_raised_by_hand(place: Place) -> None:
    def body(self: Any, word: str = "first") -> str:
        if self.request.retries == 0:
            raise Retry("later", when=0.2, sig=self.s("second"))
        return word

    seen = place.send(place.task(body))
    if place.either(ordinary=False, durable=True):
        place.wait(seen)
        assert (seen.runs, seen.value) == ([0, 1], "second")
        assert seen.signals == RUN_AGAIN + SUCCEEDS
        assert place.ended(seen).retries == 1
    else:
        place.wait(seen, lambda: seen.signals == RUN_AGAIN)
        assert seen.state == "RETRY"


@row(
    "`raise Retry(exc=)` by hand, again and again",
    "runs once and stays in RETRY",
    "runs `max_retries` + 1 times and fails with that error, or `MaxRetriesExceededError`",
    "as above",
)
def test_a_retry_raised_by_hand_respects_the_limit(place: Place) -> None:
    def body(self: Any) -> None:
        raise Retry("again", exc=Flaky("no"), when=0)

    seen = place.send(place.task(body, max_retries=1))
    if place.either(ordinary=False, durable=True):
        place.wait(seen)
        assert (seen.runs, seen.state, seen.error) == ([0, 1], "FAILURE", "Flaky")
        assert seen.signals == RUN_AGAIN + FAILS
    else:
        place.wait(seen, lambda: seen.signals == RUN_AGAIN)
        assert seen.state == "RETRY"


@row("`autoretry_for=`, `dont_autoretry_for=`", "retries on these errors and not on those")
def test_autoretry(place: Place) -> None:
    def body(self: Any, kind: str) -> None:
        raise {"flaky": Flaky, "hopeless": Hopeless}[kind]("no")

    options = {"autoretry_for": (Flaky,), "dont_autoretry_for": (Hopeless,)}
    task = place.task(body, retry_kwargs={"max_retries": 2, "countdown": 0}, **options)
    flaky, hopeless = place.run(task, "flaky"), place.run(task, "hopeless")
    assert (flaky.runs, flaky.state, flaky.error) == ([0, 1, 2], "FAILURE", "Flaky")
    assert flaky.signals == RUN_AGAIN * 2 + FAILS
    assert (hopeless.runs, hopeless.state) == ([0], "FAILURE")


@row(
    "`retry_backoff=`, `retry_backoff_max=`, `retry_jitter=`",
    "the delays double, up to the longest; with jitter each is a random part of that",
)
def test_back_off(place: Place) -> None:
    def body(self: Any) -> None:
        raise Flaky("no")

    options = {"autoretry_for": (Flaky,), "retry_backoff": 0.5, "max_retries": 2}
    with _delays() as steady:
        place.run(place.task(body, retry_backoff_max=1, retry_jitter=False, **options))
    assert steady == [1, 1]
    with _delays() as random:
        seen = place.run(place.task(body, retry_backoff_max=2, **options))
    assert seen.runs == [0, 1, 2]
    assert all(0 <= delay <= longest for delay, longest in zip(random, (1, 2), strict=True))


@contextmanager
def _delays() -> Iterator[list[float]]:
    """The delays of the retries that happen meanwhile."""
    delays: list[float] = []

    def receive(reason: Retry, **_: Any) -> None:
        delays.append(reason.when)

    signals.task_retry.connect(receive, weak=False)
    try:
        yield delays
    finally:
        signals.task_retry.disconnect(receive)


@row("`retry_kwargs=`", "given to `self.retry`: here the new arguments come from it")
def test_retry_kwargs(place: Place) -> None:
    def body(self: Any, word: str) -> str:
        if word == "first":
            raise Flaky("no")
        return word

    task = place.task(body, autoretry_for=(Flaky,), retry_kwargs={"countdown": 0, "args": ("second",)})
    assert place.run(task, "first").value == "second"


@row("`default_retry_delay=`", "the delay of a retry that names none")
def test_the_default_delay(place: Place) -> None:
    def body(self: Any) -> None:
        if self.request.retries == 0:
            raise self.retry()

    started = time.monotonic()
    assert place.run(place.task(body, default_retry_delay=0.5)).runs == [0, 1]
    assert time.monotonic() - started >= 0.5


@row("a retry whose arguments cannot be sent", "FAILURE, with the encoder's error; `task_failure` once")
def test_a_retry_that_cannot_be_sent(place: Place) -> None:
    def body(self: Any) -> None:
        raise self.retry(args=(object(),), countdown=0)

    seen = place.send(place.task(body))
    place.wait(seen, lambda: seen.state == "FAILURE" and "failure" in seen.signals)
    assert seen.runs == [0]
    assert seen.signals.count("failure") == 1


@row("`link=` and `link_error=` over retries", "called once, by the run that ends the task")
def test_callbacks_follow_the_last_run(place: Place) -> None:
    def body(self: Any, fails: bool) -> str:
        if self.request.retries < 2:
            raise self.retry(countdown=0)
        if fails:
            raise Flaky("no")
        return "done"

    task, after, failed = place.task(body), place.logger("after"), place.logger("failed")
    good = place.run(task, False, link=after.s(), link_error=failed.s())
    bad = place.run(task, True, link=after.s(), link_error=failed.s())
    until(lambda: len(place.log) == 2, told=lambda: place.log)
    assert sorted(place.log) == [("after", "done"), ("failed", bad.result.id)]
    assert good.state == "SUCCESS"
