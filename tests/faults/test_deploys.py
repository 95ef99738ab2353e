"""Old and new code side by side."""

from __future__ import annotations

import pytest

from tests.faults.bench import Bench
from tests.faults.ledger import wait_for
from tests.faults.setup import T


@pytest.mark.case("X4")
def test_a_task_unknown_to_one_worker_waits_for_one_that_knows_it(bench: Bench) -> None:
    old = bench.worker("old", without=("rare",))
    task = bench.send("rare", "x")
    wait_for(lambda: "rare" in old.tail(10**6), T, "the old worker says that it does not know the task")
    assert bench.outcome(task) == "", "the task was given up"

    bench.worker("new")
    old.terminate()
    gone = bench.now()

    run = bench.ledger.wait("run", "x", within=T)[0]
    bench.recovered(gone, run, within=T)
    bench.wait_ended(task)
    assert bench.outcome(task) == "succeeded"
    assert bench.times("run", ["x"]) == {"x": 1}


@pytest.mark.case("X4-deadline", settings={"unknown_deadline": 4})
def test_a_task_that_no_worker_knows_is_a_dead_letter_after_the_deadline(bench: Bench) -> None:
    old = bench.worker("old", without=("rare",))
    met = bench.now()
    task = bench.send("rare", "x", errback=True)

    dead = bench.ledger.wait("dead", within=4 + T)[0]
    assert dead.time - met >= 4
    assert "argus_unknown_deadline" in dead.detail
    bench.wait_ended(task)
    assert bench.outcome(task) == "dead"
    bench.ledger.wait("errback", task, within=T)
    old.terminate()
    bench.worker("new")
    bench.wait_ended(bench.send("rare", "y"))
    assert bench.times("run", ["x", "y"]) == {"x": 0, "y": 1}
    assert bench.times("errback", [task]) == {task: 1}
