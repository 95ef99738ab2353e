"""A revoked task does not run, whoever was there to hear it, and a run that is revoked comes to nothing."""

from __future__ import annotations

import pytest

from tests.faults.bench import Bench
from tests.faults.setup import LEASE_TTL, T

RENEWAL = LEASE_TTL / 3


@pytest.mark.case("21")
def test_a_task_that_is_revoked_before_any_worker_runs_never_runs(bench: Bench) -> None:
    tasks = [bench.send("quick", f"r-{number}") for number in range(3)]
    for task in tasks:
        bench.app.control.revoke(task)
    bench.worker("one")
    bench.wait_ended(bench.send("quick", "after"), *tasks)
    assert {bench.outcome(task) for task in tasks} == {"cancelled"}
    assert [line.tag for line in bench.ledger.lines("run")] == ["after"]


@pytest.mark.case("21-eta")
def test_the_revoke_of_a_scheduled_task_holds_after_its_worker_was_killed(bench: Bench) -> None:
    one = bench.worker("one")
    task = bench.send("quick", "scheduled", countdown=6)
    bench.app.control.revoke(task)
    one.kill()
    bench.worker("two")
    bench.wait_ended(bench.send("quick", "after", countdown=7), task, within=7 + T)
    assert bench.outcome(task) == "cancelled"
    assert [line.tag for line in bench.ledger.lines("run")] == ["after"]


@pytest.mark.case("21-running")
def test_a_run_that_is_revoked_is_cancelled_within_a_renewal_and_its_chain_never_starts(bench: Bench) -> None:
    bench.worker("one")
    slow, quick = bench.app.tasks["slow"], bench.app.tasks["quick"]
    first = bench.send_chain(slow.si("first", 8), quick.si("second"))[0]
    del bench.accepted[-1]  # it never comes
    bench.ledger.wait("start", "first", within=T)
    bench.app.control.revoke(first)
    bench.wait_ended(first, within=RENEWAL + 2)

    bench.wait_ended(bench.send("quick", "after"), within=8 + T)
    assert bench.outcome(first) == "cancelled"
    assert [line.tag for line in bench.ledger.lines("run")] == ["after"]
    assert not [line for line in bench.ledger.lines("success", "slow") if line.task_id == first]
    assert not bench.ledger.lines("failure")
