"""The OOM killer takes a child of the pool, or a time limit does; the parent lives."""

from __future__ import annotations

import pytest

from tests.faults.bench import Bench
from tests.faults.setup import T


@pytest.mark.case("1")
def test_a_killed_child_runs_again_within_two_seconds_and_ends_once(bench: Bench) -> None:
    node = bench.worker("one")
    task = bench.send("slow", "a", 8, errback=True)
    first = bench.ledger.wait("start", "a", within=T)[0]

    killed = node.kill_child(first.pid)

    second = bench.ledger.wait("start", "a", count=2, within=T)[1]
    bench.recovered(killed, second, within=2)
    bench.ledger.wait("end", "a", within=8 + T)
    bench.wait_ended(task)
    assert bench.outcome(task) == "succeeded"
    assert bench.times("end", ["a"]) == {"a": 1}
    assert (first.attempt, second.attempt) == (1, 2)
    assert not bench.ledger.lines("errback")
    assert not bench.ledger.lines("failure")


@pytest.mark.case("1-end")
def test_a_child_killed_between_its_end_and_its_completion_has_one_outcome(bench: Bench) -> None:
    bench.worker("one")
    task = bench.send("endkill", "a", errback=True)

    first, second = bench.ledger.wait("start", "a", count=2, within=T)
    bench.recovered(first.time, second, within=2)
    bench.wait_ended(task)
    assert bench.outcome(task) == "succeeded"
    assert len(bench.ledger.lines("success")) == 1
    assert not bench.ledger.lines("errback")


@pytest.mark.case("3")
def test_a_task_that_kills_its_child_each_time_is_buried_and_those_behind_it_run(bench: Bench) -> None:
    bench.worker("one")
    poison = bench.send("selfkill", "p", errback=True)
    behind = [bench.send("quick", f"b{number}") for number in range(10)]

    bench.ledger.wait("errback", poison, within=3 * T)
    tags = [f"b{number}" for number in range(10)]
    bench.ledger.wait("run", count=10, within=T)
    bench.wait_ended(poison, *behind)
    assert bench.outcome(poison) == "dead"
    assert bench.times("start", ["p"]) == {"p": 3}
    assert bench.times("errback", [poison]) == {poison: 1}
    assert bench.times("run", tags) == dict.fromkeys(tags, 1)
    (dead,) = bench.ledger.lines("dead")
    assert dead.task_id == poison
    assert dead.detail
    assert [bench.info(task).losses for task in behind] == [0] * 10


@pytest.mark.case("X5")
def test_a_hard_time_limit_is_one_failure_told_once(bench: Bench) -> None:
    bench.worker("one")
    task = bench.send("slow", "h", 60, time_limit=2, errback=True)
    bench.ledger.wait("errback", task, within=2 + T)
    bench.wait_ended(task)
    behind = bench.send("quick", "behind")
    bench.wait_ended(behind)

    assert bench.outcome(task) == "failed"
    assert bench.times("start", ["h"]) == {"h": 1}
    assert bench.times("errback", [task]) == {task: 1}
    assert [line.detail for line in bench.ledger.lines("failure")] == ["TimeLimitExceeded"]
