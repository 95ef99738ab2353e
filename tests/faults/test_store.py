"""The store: connections and forks, restarts and outages, and restores that race."""

from __future__ import annotations

import re

import pytest

from tests.faults.bench import Bench
from tests.faults.lapsed import due_count, hold_by_a_dead_worker
from tests.faults.ledger import lasting, wait_for
from tests.faults.nodes import Node
from tests.faults.setup import LEASE_TTL, T


@pytest.mark.case("24-fork", touch_store=True)
def test_a_store_used_before_the_fork_serves_every_child(bench: Bench) -> None:
    node = bench.worker("one", 4)
    tags = [str(number) for number in range(400)]
    tasks = [bench.send("quick", tag) for tag in tags]

    bench.ledger.wait("run", count=400, within=90)
    bench.wait_ended(*tasks)
    assert bench.times("run", tags) == dict.fromkeys(tags, 1)
    assert errors_of(node) == []


@pytest.mark.case("24-away", own_store=True)
def test_workers_outlive_a_store_that_restarts_and_then_is_away_for_two_ttl(bench: Bench) -> None:
    slow, waiting = [str(number) for number in range(4)], [f"w{number}" for number in range(20)]
    bench.worker("one", 4)
    tasks = [bench.send("slow", tag, 12) for tag in slow]
    bench.ledger.wait("start", count=4, within=T)
    tasks += [bench.send("quick", tag) for tag in waiting]

    bench.place.server.kill()
    bench.place.server.start()
    lasting(1)
    bench.place.server.kill()
    lasting(2 * LEASE_TTL)
    bench.place.server.start()
    back = bench.now()

    runs = bench.ledger.wait("run", count=20, within=2 * T + 12)
    bench.recovered(back, runs[0], within=T + 12)
    bench.wait_ended(*tasks, within=2 * T + 12)
    assert bench.times("end", slow) == dict.fromkeys(slow, 1)
    assert bench.times("run", waiting) == dict.fromkeys(waiting, 1)
    assert {bench.outcome(task) for task in tasks} == {"succeeded"}


@pytest.mark.case("X1", settings={"dispatch_ttl": 60, "dispatch_ttl_max": 60})
def test_two_sweeps_and_five_boots_at_once_enqueue_each_lapsed_task_once(bench: Bench) -> None:
    tasks = [bench.send("quick", str(number)) for number in range(200)]
    hold_by_a_dead_worker(bench, tasks)
    bench.broker.flush()
    wait_for(lambda: due_count(bench) == 200, LEASE_TTL + T, "all leases have lapsed")
    lapsed = bench.now()

    sweeps = [bench.command(f"sweep{number}", "sweep") for number in range(2)]
    boots = [bench.launch(f"boot{number}", 1, "-Q", "elsewhere") for number in range(5)]
    for boot in boots:
        boot.wait_ready()
    for sweep in sweeps:
        sweep.wait_exit(within=30)

    sent = bench.ledger.wait("dispatched", count=200, within=T)
    bench.recovered(lapsed, sent[-1], within=2 * T)
    last = bench.command("sweep-again", "sweep")
    last.wait_exit(within=30)
    ids = [line.task_id for line in bench.ledger.lines("dispatched")]
    assert sorted(ids) == sorted(tasks), f"{len(ids)} were sent, {len(set(ids))} different ones"
    assert bench.broker.ready() == 200
    bench.worker("one", 2)
    bench.wait_ended(*tasks, within=60)
    assert len(bench.ledger.lines("run")) == 200


def errors_of(node: Node) -> list[str]:
    return re.findall(r".*(?:ERROR|CRITICAL)/.*|.*Traceback.*", node.tail(10**7))
