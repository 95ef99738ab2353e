"""Tasks that are due later, and clocks that are wrong."""

from __future__ import annotations

import psutil
import pytest

from tests.faults.bench import Bench
from tests.faults.nodes import Node
from tests.faults.setup import T

MEBIBYTE = 2**20


@pytest.mark.case("23", faketime=True)
def test_a_worker_whose_clock_is_an_hour_off_starts_expires_and_takes_nothing(bench: Bench) -> None:
    clocks = {"ahead": "+1h", "right": "", "behind": "-1h"}
    nodes = [bench.launch(name, 1, "-Q", f"celery,only-{name}", clock=clock) for name, clock in clocks.items()]
    for node in nodes:
        node.wait_ready()
    tasks = [bench.send("slow", name, 12, queue=f"only-{name}") for name in clocks]
    bench.ledger.wait("start", count=3, within=T)

    fresh = [bench.send("quick", f"fresh-{name}", expires=600, queue=f"only-{name}") for name in clocks]
    later = bench.send_many("quick", ["later"] * 6, "later", countdown=1800)

    bench.wait_ended(*tasks, *fresh, within=12 + 2 * T)
    assert [bench.info(task).error for task in tasks + fresh if bench.outcome(task) != "succeeded"] == []
    assert bench.times("run", [f"fresh-{name}" for name in clocks]) == {f"fresh-{name}": 1 for name in clocks}
    assert bench.times("start", list(clocks)) == bench.times("end", list(clocks)) == dict.fromkeys(clocks, 1)
    assert not bench.ledger.lines("lapsed")
    assert not bench.ledger.lines("lost")
    assert not bench.ledger.lines("run", "later")
    assert {str(bench.info(task).state) for task in later} == {"waiting"}
    bench.project("later").cancel()


@pytest.mark.case("X3")
def test_eight_thousand_later_tasks_cost_a_worker_nothing_and_are_shared_when_due(bench: Bench) -> None:
    one = bench.worker("one", 2)
    before = memory(one)
    bench.send_many("quick", ["far"] * 7940, "far", countdown=3600)
    two = bench.worker("two", 2)
    assert bench.broker.depth() == 0, "a message left before it was due"
    near = [f"near-{number}" for number in range(60)]
    sent = bench.now()
    # One by itself takes three seconds for them: longer than a worker without work sleeps between two looks.
    tasks = bench.send_many("slow", near, "near", 0.05, countdown=8)
    latest = bench.now() + 8
    assert bench.broker.ready() == 0, "a message left before it was due"

    runs = bench.ledger.wait("start", count=60, within=8 + T)
    bench.wait_ended(*tasks)
    assert bench.times("start", near) == dict.fromkeys(near, 1)
    assert min(line.time for line in runs) > sent + 8 - 0.05
    bench.recovered(latest, max(runs, key=lambda line: line.time), within=5)
    shares = {node.name: len([line for line in runs if line.pid in processes(node)]) for node in (one, two)}
    assert min(shares.values()) >= 10, f"not shared: {shares}"
    assert memory(one) - before < 16 * MEBIBYTE
    assert not bench.ledger.lines("run", "far")
    bench.project("far").cancel()


def memory(node: Node) -> int:
    """Bytes of its main process, once that takes no more."""
    return int(psutil.Process(node.pid).memory_info().rss)


def processes(node: Node) -> set[int]:
    return {node.pid, *(child.pid for child in psutil.Process(node.pid).children())}
