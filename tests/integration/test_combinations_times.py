"""When a task is due, when it is too late, and what goes first. The database's clock decides."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import chain

from tests.integration.combinations import RUN_AGAIN, Place, row
from tests.integration.embedded import until

pytestmark = pytest.mark.redis

TITLE = "Times, order and rates"


def _started(place: Place, **options: Any) -> float:
    """Send it; how many seconds later its body began."""
    began: list[float] = []
    task = place.task(lambda self: began.append(time.monotonic()))
    sent = time.monotonic()
    place.run(task, **options)
    assert len(began) == 1
    return began[0] - sent


@row("`countdown=`, `eta=`", "once, not before it is due")
def test_a_task_that_is_due_later(place: Place) -> None:
    assert _started(place, countdown=0.6) >= 0.6
    assert _started(place, eta=datetime.now(UTC) + timedelta(seconds=0.6)) >= 0.55


@row("an `eta` in the past", "runs at once")
def test_an_eta_in_the_past(place: Place) -> None:
    assert _started(place, eta=datetime.now(UTC) - timedelta(hours=1)) < 10


@row(
    "a `countdown` or `eta` far ahead",
    "its message waits unacked in a worker's memory",
    "its row waits in the store; no worker and no broker holds a message before it is due",
    "a worker's memory and a visibility timeout are where delayed messages are lost and doubled",
)
def test_where_a_later_task_waits(place: Place) -> None:
    seen = place.send(place.task(lambda self: 1), countdown=3600)
    if place.either(ordinary=True, durable=False):
        until(lambda: seen.result.id in place.scheduled())
    else:
        assert place.lease(seen).holder == ""
        assert place.run(place.task(lambda self: 1)).value == 1, "the worker looks into the queue meanwhile"
        assert seen.result.id not in place.scheduled()


@row(
    "`expires=` (seconds or an instant), passed",
    "REVOKED; `task_revoked` (`expired=True`) once; it does not run; no callbacks",
)
def test_a_task_that_is_too_late(place: Place) -> None:
    task, after = place.task(lambda self: 1), place.logger("after")
    soon = datetime.now(UTC) + timedelta(seconds=0.2)
    for expires in (0.2, soon):
        seen = place.send(task, countdown=0.7, expires=expires, link=after.si(), link_error=after.si())
        place.wait(seen, lambda seen=seen: seen.state == "REVOKED" and seen.signals)
        assert (seen.runs, seen.signals) == ([], ["revoked"])
        if place.durable:
            assert place.ended(seen).state == "expired"
    assert place.log == []


@row("`expires=`, not passed", "runs; `request.expires` says when it would have been too late")
def test_a_task_in_time(place: Place) -> None:
    seen = place.run(place.task(lambda self: self.request.expires), expires=600)
    until(lambda: seen.value is not None)
    left = datetime.fromisoformat(str(seen.value)) - datetime.now(UTC)
    assert timedelta(seconds=570) < left < timedelta(seconds=601)


@row("`expires=` passed while a retry waits", "REVOKED: the expiry is that of the first call")
def test_a_retry_that_is_too_late(place: Place) -> None:
    def body(self: Any) -> None:
        raise self.retry(countdown=5.5)

    seen = place.send(place.task(body), expires=5)
    place.wait(seen, lambda: seen.state == "REVOKED" and "revoked" in seen.signals)
    assert (seen.runs, seen.signals) == ([0], [*RUN_AGAIN, "revoked"])


@row("`self.retry(expires=)`", "the new expiry holds from then on")
def test_a_retry_with_another_expiry(place: Place) -> None:
    def body(self: Any) -> str:
        if self.request.retries == 0:
            raise self.retry(countdown=1, expires=600)
        return "in time"

    assert place.run(place.task(body), expires=0.8 + 5).value == "in time"


@row("`self.retry(expires=None)`, `self.replace(sig)`", "what is without an expiry does not expire")
def test_a_retry_and_a_replacement_without_an_expiry(place: Place) -> None:
    other = place.task(lambda self: "in time")

    def retries(self: Any) -> str:
        if self.request.retries == 0:
            raise self.retry(countdown=3.5, expires=None)
        return "in time"

    def replaces(self: Any) -> None:
        raise self.replace(other.si().set(countdown=3.5))

    seen = [place.send(place.task(body), expires=3) for body in (retries, replaces)]
    for one in seen:
        until(lambda one=one: one.value == "in time", 20, lambda one=one: one.value)


@row("`expires=` of a part of a chain", "counted from when that part is sent; the parts behind it never start")
def test_a_chain_with_a_part_that_expires(place: Place) -> None:
    first, second = place.task(lambda self: time.sleep(0.5)), place.task(lambda self: "second")
    in_time = chain(first.si(), second.si().set(expires=20)).apply_async()
    assert in_time.get(timeout=20) == "second"
    late = chain(first.si(), second.si().set(expires=0.2, countdown=0.7), place.logger("third").si()).apply_async()
    until(lambda: late.parent.state == "REVOKED", told=lambda: late.parent.state)
    assert place.of(late.parent.id).runs == []
    assert place.log == []


@row("`priority=`", "goes to the broker with the message; `request.delivery_info` has it")
def test_priority_reaches_the_broker(place: Place) -> None:
    task = place.task(lambda self: self.request.delivery_info["priority"])
    assert [place.run(task, priority=priority).value for priority in (0, 3, 9)] == [0, 3, 9]


@row("`rate_limit=` of the task", "that many starts in that time and worker; what waits is not lost")
def test_a_rate_limit(place: Place) -> None:
    began: list[float] = []
    task = place.task(lambda self: began.append(time.monotonic()), rate_limit="4/s")
    place.consumer.reset_rate_limits()
    for seen in [place.send(task) for _ in range(6)]:
        place.wait(seen)
    assert len(began) == 6
    assert began[-1] - began[0] >= 0.7


@row("`control.rate_limit`", "holds from then on")
def test_a_rate_limit_by_remote_control(place: Place) -> None:
    began: list[float] = []
    task = place.task(lambda self: began.append(time.monotonic()))
    answers = place.app.control.rate_limit(task.name, "4/s", reply=True, timeout=5, limit=1)
    assert "new rate limit set successfully" in str(answers)
    for seen in [place.send(task) for _ in range(6)]:
        place.wait(seen)
    assert began[-1] - began[0] >= 0.7
