"""What is to follow a chord's header is lost with no process of it, and happens once."""

from __future__ import annotations

import pytest

from tests.faults.bench import Bench
from tests.faults.ledger import wait_for
from tests.faults.setup import T


def _send(bench: Bench, third: str = "quick") -> str:
    app = bench.app
    header = [app.signature("quick", ("a",)), app.signature("slow", ("b", 5)), app.signature(third, ("c",))]
    return bench.send_chord(*header)


def _gathered_once(bench: Bench, body: str) -> None:
    bench.ledger.wait("gathered", within=5 + 2 * T)
    bench.wait_ended(body)
    assert bench.outcome(body) == "succeeded"
    assert [line.detail for line in bench.ledger.lines("gathered")] == ["a,b,c"]
    assert not bench.ledger.lines("errback")


@pytest.mark.case("19")
def test_the_body_runs_once_though_a_header_task_lost_its_child(bench: Bench) -> None:
    node = bench.worker("one", 2)
    body = _send(bench)
    first = bench.ledger.wait("start", "b", within=T)[0]

    killed = node.kill_child(first.pid)

    bench.recovered(killed, bench.ledger.wait("start", "b", count=2, within=T)[1], within=2)
    _gathered_once(bench, body)


@pytest.mark.case("19-worker")
def test_the_body_runs_once_though_the_worker_of_its_header_was_killed(bench: Bench) -> None:
    node = bench.worker("one", 2)
    body = _send(bench)
    bench.ledger.wait("start", "b", within=T)

    killed = node.kill()

    bench.worker("two", 2)
    bench.recovered(killed, bench.ledger.wait("start", "b", count=2, within=T)[1], within=T)
    _gathered_once(bench, body)


@pytest.mark.case("19-fails")
def test_a_header_task_that_fails_for_good_is_an_errback_once_and_no_body(bench: Bench) -> None:
    bench.worker("one", 2)
    body = _send(bench, "broken")
    bench.ledger.wait("errback", body, within=5 + T)
    wait_for(lambda: bench.ledger.lines("end", "b"), T, "the rest of the header ends")
    if not bench.setup.stock:
        wait_for(lambda: bench.outcome(body) == "failed", T, "the body has failed")
    assert bench.times("errback", [body]) == {body: 1}
    assert not bench.ledger.lines("gathered")
