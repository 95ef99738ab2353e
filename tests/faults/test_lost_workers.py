"""A whole worker is killed, stopped for a while, or replaced."""

from __future__ import annotations

import psutil
import pytest

from tests.faults.bench import Bench
from tests.faults.business import tokens_of
from tests.faults.ledger import lasting
from tests.faults.setup import LEASE_TTL, T


@pytest.mark.case("2")
def test_a_killed_workers_tasks_run_on_another_node(bench: Bench) -> None:
    tags = ["0", "1", "2", "3"]
    node = bench.worker("one")
    tasks = [bench.send("slow", tag, 3) for tag in tags]
    begun = bench.ledger.wait("start", within=T)[0]
    bench.wait_prefetched()

    killed = node.kill()
    bench.worker("two")

    again = bench.ledger.wait("start", begun.tag, count=2, within=T + 4 * 3)[1]
    bench.ledger.wait("start", count=5, within=4 * 3 + T)
    next_one = sorted(bench.ledger.lines("start"), key=lambda line: line.time)[1]
    bench.recovered(killed, next_one, within=T)
    bench.ledger.wait("end", count=4, within=4 * 3 + T)
    bench.wait_ended(*tasks)
    assert bench.times("end", tags) == dict.fromkeys(tags, 1)
    assert again.attempt == 2
    others = [line.attempt for line in bench.ledger.lines("start") if line.tag != begun.tag]
    assert others == [1, 1, 1]


@pytest.mark.case("11")
def test_a_worker_that_was_stopped_for_two_ttl_writes_nothing_and_goes_on(bench: Bench) -> None:
    one = bench.launch("one", 1, "-Q", "celery,only-one")
    two = bench.worker("two", 1, "-Q", "only-two")
    one.wait_ready()
    lastact, quick = bench.app.tasks["lastact"], bench.app.tasks["quick"]
    tasks = bench.send_chain(lastact.s("z", 8), quick.si("after"))
    bench.ledger.wait("start", "z", within=T)

    bench.join_queue(two)
    one.freeze()
    stopped = bench.now()
    second = bench.ledger.wait("start", "z", count=2, within=T)[1]
    bench.recovered(stopped, second, within=T)
    bench.ledger.wait("effect", "z", within=8 + T)
    lasting(max(0.0, stopped + 2 * LEASE_TTL - bench.now()))
    one.thaw()

    new = bench.send("quick", "new", queue="only-one")
    bench.wait_ended(*tasks, new)
    assert tokens_of(bench.setup.store, "z") == [second.token]
    assert bench.times("effect", ["z"]) == {"z": 1}
    assert bench.times("run", ["after", "new"]) == {"after": 1, "new": 1}
    assert len([line for line in bench.ledger.lines("success") if line.task_id == tasks[0]]) == 1
    assert bench.info(tasks[0]).state == "succeeded"


@pytest.mark.case("11-parent")
def test_stopping_only_the_main_process_for_less_than_a_ttl_takes_nothing_from_it(bench: Bench) -> None:
    one = bench.worker("one")
    task = bench.send("slow", "z", 8)
    bench.ledger.wait("start", "z", within=T)
    bench.worker("two")

    one.freeze(only_parent=True)
    # A renewal may be a third of the TTL old when the process stops.
    lasting(LEASE_TTL * 2 / 3 - 0.5)
    one.thaw(only_parent=True)

    bench.ledger.wait("end", "z", within=8 + T)
    bench.wait_ended(task)
    assert bench.times("start", ["z"]) == bench.times("end", ["z"]) == {"z": 1}


@pytest.mark.case("17")
def test_a_worker_killed_during_its_warm_shutdown_leaves_its_tasks_to_the_next(bench: Bench) -> None:
    old = bench.worker("old")
    cut, prefetched = bench.send("slow", "r", 30), bench.send("quick", "p")
    bench.ledger.wait("start", "r", within=T)
    bench.wait_prefetched()

    old.terminate()
    lasting(4)
    killed = old.kill()
    new = bench.launch("new", 2)
    ready = new.wait_ready()

    waiting = bench.ledger.wait("run", "p", within=T)[0]
    bench.recovered(ready, waiting, within=3)
    again = bench.ledger.wait("start", "r", count=2, within=T)[1]
    bench.recovered(killed, again, within=T)
    bench.ledger.wait("end", "r", within=30 + T)
    bench.wait_ended(cut, prefetched)
    assert bench.times("run", ["p"]) == {"p": 1}
    assert bench.times("end", ["r"]) == {"r": 1}


@pytest.mark.case("17-rolling")
def test_workers_replaced_one_by_one_under_load_lose_and_repeat_nothing(bench: Bench) -> None:
    tags = [str(number) for number in range(50)]
    nodes = [bench.launch(f"old{number}", 2) for number in range(5)]
    for node in nodes:
        node.wait_ready()
    tasks = [bench.send("slow", tag, 2) for tag in tags]
    bench.ledger.wait("start", count=5, within=T)

    for number, node in enumerate(nodes):
        node.terminate()
        replacement = bench.launch(f"new{number}", 2)
        node.wait_exit(within=T)
        replacement.wait_ready()

    bench.ledger.wait("end", count=50, within=60)
    bench.wait_ended(*tasks)
    assert bench.times("end", tags) == dict.fromkeys(tags, 1)
    assert psutil.Process(bench.nodes[-1].pid).is_running()
    bench.nodes[-1].terminate()
    bench.nodes[-1].wait_exit(within=3)
