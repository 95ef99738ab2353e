"""How a run ends, who is told, and how often."""

from __future__ import annotations

import time
from typing import Any

import pytest
from celery import chain
from celery.exceptions import Ignore, Reject

from tests.integration.combinations import FAILS, IGNORED, SUCCEEDS, Place, Seen, row
from tests.integration.embedded import until

pytestmark = pytest.mark.redis

TITLE = "Ends of a run"


def _told(place: Place, task: Any, last: str = "postrun") -> tuple[Seen, list[Any]]:
    """Run it with a link and an errback, up to its last signal; who was called."""
    seen = place.send(task, link=place.logger("after").s(), link_error=place.logger("failed").s())
    place.wait(seen, lambda: any(one.startswith(last) for one in seen.signals))
    marker = place.logger("marker")
    place.run(marker)  # one thread: what was sent before it has run
    return seen, [one[0] for one in place.log if one[0] != "marker"]


@row("the body returns", "SUCCESS; `link`; `task_success`, `on_success`, `after_return` once each")
def test_a_success(place: Place) -> None:
    seen, told = _told(place, place.task(lambda self: 42, name="ends.success"))
    assert (seen.state, seen.value, told) == ("SUCCESS", 42, ["after"])
    assert seen.signals == SUCCEEDS
    assert seen.handlers == ["before_start", "on_success", "after_return SUCCESS"]


@row("the body raises", "FAILURE; `link_error`; `task_failure`, `on_failure`, `after_return` once each")
def test_a_failure(place: Place) -> None:
    seen, told = _told(place, place.task(_raising(ValueError("no")), name="ends.failure"))
    assert (seen.state, seen.error, told) == ("FAILURE", "ValueError", ["failed"])
    assert seen.signals == FAILS
    assert seen.handlers == ["before_start", "on_failure", "after_return FAILURE"]


def _raising(error: BaseException) -> Any:
    def body(self: Any) -> None:
        raise error

    return body


@row("the result cannot be serialised", "FAILURE with the encoder's error; `link_error`, although the body returned")
def test_a_result_that_does_not_serialise(place: Place) -> None:
    seen, told = _told(place, place.task(lambda self: object(), name="ends.odd"))
    assert (seen.state, seen.signals) == ("FAILURE", FAILS)
    assert "failed" in told
    assert seen.handlers == ["before_start", "on_failure", "after_return FAILURE"]


@row(
    "the result cannot be serialised, and there is a `link`",
    "the callback has been sent before the result is stored: both callback and errback run",
    "only the errback",
    "callbacks are recorded with the outcome, and the outcome is a failure",
)
def test_a_callback_of_a_result_that_does_not_serialise(place: Place) -> None:
    after = place.logger("after")
    task = place.task(lambda self: object(), name="ends.odder")
    seen = place.send(task, link=after.si(), link_error=place.logger("failed").s())
    place.wait(seen)
    place.run(place.logger("marker"))
    told = [one[0] for one in place.log]
    assert told == place.either(ordinary=["after", "failed", "marker"], durable=["failed", "marker"])


@row(
    "a callback that cannot be sent",
    "FAILURE with that error; `link_error`, `on_failure` once, although the body returned",
)
def test_a_callback_that_cannot_be_sent(place: Place) -> None:
    after = place.logger("after").si()
    task = place.task(lambda self: 42, name="ends.linked")
    seen = place.send(task, link=[after, after.set(countdown="soon")], link_error=place.logger("failed").s())
    place.wait(seen)
    place.wait(seen, lambda: any(one[0] == "failed" for one in place.log))
    place.run(place.logger("marker"))
    assert (seen.state, seen.error) == ("FAILURE", "TypeError")
    assert [one[0] for one in place.log if one[0] != "after"] == ["failed", "marker"]
    assert seen.handlers.count("on_failure") == 1
    if place.durable:
        assert (place.info(seen).attempts, place.info(seen).losses) == (1, 0)


@row(
    "`raise Ignore`",
    "acked; no result, no callbacks, no handler but `before_start`: the task stays in the state it had",
    "the same, and the task has ended: `succeeded` in the store (so SUCCESS on `argus://`), without a result",
    "its project has to know that it is over",
)
def test_ignore(place: Place) -> None:
    seen, told = _told(place, place.task(_raising(Ignore("never mind")), name="ends.ignore"))
    assert (seen.state, told) == ("SUCCESS" if place.embedded else "PENDING", [])
    assert seen.signals == IGNORED
    assert seen.handlers == ["before_start"]
    if place.either(ordinary=False, durable=True):
        assert place.ended(seen).state == "succeeded"


@row(
    "`update_state`, then `raise Ignore`",
    "the state that the body set stays in the result backend (`argus://` says SUCCESS)",
)
def test_a_state_of_its_own(place: Place) -> None:
    def body(self: Any) -> None:
        self.update_state(state="PAUSED", meta={"at": 3})
        raise Ignore

    seen, _ = _told(place, place.task(body, name="ends.state"))
    if place.embedded:
        assert place.ended(seen).state == "succeeded"
    else:
        assert (seen.state, seen.value) == ("PAUSED", {"at": 3})


@row("`raise Reject(requeue=False)`", "FAILURE with the `Reject`; `link_error`, `task_failure` once; no `on_failure`")
def test_reject(place: Place) -> None:
    seen, told = _told(place, place.task(_raising(Reject("no")), name="ends.reject"), last="failure")
    assert (seen.state, seen.error, told) == ("FAILURE", "Reject", ["failed"])
    assert seen.signals == ["prerun", "postrun REJECTED", "failure"]
    assert seen.handlers == ["before_start"]


@row(
    "`raise Reject(requeue=True)`",
    "late ack: redelivered at once, without a limit; early ack: the message is gone, the task never ends",
    "both: given back to the store and run again after a second, without a limit; neither a retry nor a loss",
    "a task that has not ended has to be due again, and at once would be a loop without a pause",
)
def test_reject_with_requeue(place: Place) -> None:
    started = []

    def body(self: Any) -> str:
        started.append(time.monotonic())
        if len(started) < 3:
            raise Reject("not now", requeue=True)
        return str(self.request.delivery_info["redelivered"])

    seen = place.run(place.task(body, acks_late=True))
    assert (seen.runs, seen.value) == ([0, 0, 0], "True")
    assert seen.signals == ["prerun", "postrun REJECTED"] * 2 + SUCCEEDS
    assert (started[2] - started[0] >= 2) is place.either(ordinary=False, durable=True)
    if place.durable:
        assert (place.ended(seen).retries, place.ended(seen).losses) == (0, 0)


@row("`on_success` or `after_return` raises", "logged; the outcome stands and no errback is called")
def test_a_handler_that_raises(place: Place) -> None:
    def broken(self: Any, *_: Any) -> None:
        raise RuntimeError("a broken handler")

    base = type("Broken", (place.watched(),), {"on_success": broken, "after_return": broken, "abstract": True})
    seen, told = _told(place, place.task(lambda self: 1, base=base, name="ends.handler"))
    assert (seen.state, seen.signals, told) == ("SUCCESS", SUCCEEDS, ["after"])


@row("`before_start` raises", "FAILURE; the body does not run")
def test_before_start_that_raises(place: Place) -> None:
    def broken(self: Any, *_: Any) -> None:
        raise RuntimeError("not today")

    base = type("Unwilling", (place.watched(),), {"before_start": broken, "abstract": True})
    seen, told = _told(place, place.task(lambda self: 1, base=base, name="ends.unwilling"))
    assert (seen.state, seen.error, seen.runs, told) == ("FAILURE", "RuntimeError", [], ["failed"])


@row("`link_error` with a function of (request, error, traceback)", "called in the worker's process, once")
def test_an_errback_that_is_called_in_place(place: Place) -> None:
    def old_style(request: Any, error: Any, traceback: Any) -> None:
        place.log.append((request.id, type(error).__name__))

    errback = place.declare(old_style, name="ends.old_style")
    seen = place.run(place.task(_raising(ValueError("no")), name="ends.called"), link_error=errback.s())
    until(lambda: place.log)
    assert place.log == [(seen.result.id, "ValueError")]


@row("`link` of a chain's parts", "each part's callback once; a part behind a failed one never starts")
def test_a_chain_stops_at_a_failure(place: Place) -> None:
    good = place.task(lambda self, *args: "good", name="ends.good")
    bad = place.task(_raising(ValueError("no")), name="ends.bad")
    after, failed = place.logger("after"), place.logger("failed")
    result = chain(good.si().on_error(failed.s()), bad.si().on_error(failed.s()), after.si()).apply_async()
    until(lambda: result.parent.state == "FAILURE")
    place.run(place.logger("marker"))
    assert [one[0] for one in place.log] == ["failed", "marker"]
    assert place.of(result.id).runs == []


@row(
    "`ignore_result=True` on the task or the call",
    "no value is stored, and no error (but on `argus://`); callbacks follow",
)
def test_ignored_results(place: Place) -> None:
    by_task = place.task(lambda self: 1, ignore_result=True, name="ends.ignoring")
    by_call = place.task(lambda self: 1, name="ends.keeping")
    failing = place.task(_raising(ValueError("no")), ignore_result=True, name="ends.ignored_error")
    after = place.logger("after")
    for task, options in ((by_task, {}), (by_call, {"ignore_result": True}), (failing, {})):
        seen = place.send(task, link=after.si(), link_error=after.si(), **options)
        place.wait(seen, lambda seen=seen: any(one.startswith("postrun") for one in seen.signals))
        assert place.keeps_no_result(seen) or (place.embedded and task is failing)
    place.run(place.logger("marker"))
    assert [one[0] for one in place.log] == ["after", "after", "after", "marker"]


@row("`ignore_result=False` in the call of a task that ignores", "the call wins: the result is stored")
def test_a_result_that_is_asked_for(place: Place) -> None:
    assert place.run(place.task(lambda self: 1, ignore_result=True, name="ends.asked"), ignore_result=False).value == 1


@row("`store_errors_even_if_ignored=True`", "errors are stored, values are not")
def test_errors_are_kept_if_asked(place: Place) -> None:
    options = {"ignore_result": True, "store_errors_even_if_ignored": True}
    assert place.run(place.task(_raising(ValueError("no")), name="ends.kept_error", **options)).error == "ValueError"


@row("`track_started=True`", "STARTED while the body runs; without it PENDING (`argus://` always knows)")
def test_track_started(place: Place) -> None:
    def body(self: Any) -> str:
        return str(self.AsyncResult(self.request.id).state)

    assert place.run(place.task(body, track_started=True, name="ends.tracked")).value == "STARTED"
    assert place.run(place.task(body, name="ends.untracked")).value == ("STARTED" if place.embedded else "PENDING")


@row("`acks_late=True`", "the message is acked after the run; every end is as with an early ack")
def test_late_ack(place: Place) -> None:
    seen, told = _told(place, place.task(lambda self: 1, acks_late=True, name="ends.late"))
    assert (seen.state, told, seen.signals) == ("SUCCESS", ["after"], SUCCEEDS)
    failed, told = _told(place, place.task(_raising(ValueError("no")), acks_late=True, name="ends.late_failure"))
    assert (failed.state, failed.signals) == ("FAILURE", FAILS)


@row("`acks_late=True, acks_on_failure=False`", "the message of a failed run is rejected: FAILURE, once, not run again")
def test_failures_that_are_not_acked(place: Place) -> None:
    task = place.task(_raising(ValueError("no")), acks_late=True, acks_on_failure=False, name="ends.unacked")
    seen, told = _told(place, task)
    assert (seen.state, seen.runs, told) == ("FAILURE", [0], ["failed"])
    assert seen.signals == FAILS


@row("`throws=`", "an expected error: logged in one line; the end is the same")
def test_expected_errors(place: Place) -> None:
    seen, told = _told(place, place.task(_raising(KeyError("k")), throws=(KeyError,), name="ends.expected"))
    assert (seen.state, seen.error, told, seen.signals) == ("FAILURE", "KeyError", ["failed"], FAILS)
