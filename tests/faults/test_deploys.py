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
