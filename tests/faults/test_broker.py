"""The broker loses, delays and repeats messages, or goes away: nothing but time is lost."""

from __future__ import annotations

import pytest

from tests.faults.bench import Bench
from tests.faults.ledger import lasting, wait_for
from tests.faults.setup import T

IMPATIENT = {"visibility_timeout": 5, "unacked_restore_interval": 1, "unacked_restore_throttle": 1}
EARLY = 0.05
"""Clocks are read by different processes; less than this is not early."""


@pytest.mark.case("4")
def test_tasks_of_a_flushed_broker_run_once_when_a_worker_comes(bench: Bench) -> None:
    now = [f"n{number}" for number in range(20)]
    later = [f"l{number}" for number in range(5)]
    tasks = [bench.send("quick", tag) for tag in now]
    sent = bench.now()
    tasks += [bench.send("quick", tag, countdown=6) for tag in later]

    bench.broker.flush()
    flushed = bench.now()
    ready = bench.worker("one", 2).wait_ready()

    bench.ledger.wait("run", count=25, within=6 + T)
    bench.wait_ended(*tasks)
    assert bench.times("run", now + later) == dict.fromkeys(now + later, 1)
    first = bench.ledger.lines("run")[0]
    bench.recovered(max(flushed, ready), first, within=T)
    early = [line for line in bench.ledger.lines("run") if line.tag in later and line.time < sent + 6 - EARLY]
    assert not early


@pytest.mark.case("4-running")
def test_running_tasks_do_not_notice_a_flushed_broker(bench: Bench) -> None:
    tags = ["0", "1", "2", "3"]
    bench.worker("one", 4)
    tasks = [bench.send("slow", tag, 4) for tag in tags]
    bench.ledger.wait("start", count=4, within=T)

    bench.broker.flush()

    bench.ledger.wait("end", count=4, within=4 + T)
    bench.wait_ended(*tasks)
    bench.wait_ended(bench.send("quick", "after"))
    assert bench.times("start", tags) == bench.times("end", tags) == dict.fromkeys(tags, 1)


@pytest.mark.case("7", aof=True)
def test_what_runs_and_what_is_prefetched_outlives_a_redis_outage(bench: Bench) -> None:
    bench.worker("one")
    tasks = [bench.send("slow", "s", 6), bench.send("slow", "p", 1)]
    bench.ledger.wait("start", "s", within=T)
    bench.wait_prefetched()

    bench.broker.server.stop()
    lasting(9)
    bench.broker.server.start()
    back = bench.now()

    end = bench.ledger.wait("end", "p", within=T + 2)[0]
    bench.recovered(back, end, within=T + 1)
    bench.wait_ended(*tasks)
    assert bench.times("start", ["s", "p"]) == bench.times("end", ["s", "p"]) == {"s": 1, "p": 1}
    assert not bench.ledger.lines("lapsed")
    assert [bench.info(task).losses for task in tasks] == [0, 0]
    assert not bench.ledger.lines("lost")


@pytest.mark.case("8", broker_options=IMPATIENT)
def test_a_task_longer_than_the_visibility_timeout_runs_once(bench: Bench) -> None:
    bench.launch("one").wait_ready()
    bench.worker("two")
    task = bench.send("slow", "v", 20)

    bench.ledger.wait("end", "v", within=20 + T)
    bench.wait_ended(task)
    wait_for(lambda: bench.broker.depth() == 0, T, "every copy is acked")
    assert bench.times("start", ["v"]) == bench.times("end", ["v"]) == {"v": 1}


@pytest.mark.case("9", broker_options=IMPATIENT)
def test_countdowns_are_held_by_the_store_and_kept_to_the_second(bench: Bench) -> None:
    one = bench.launch("one")
    bench.worker("two")
    one.wait_ready()
    tags = [f"e{number}" for number in range(5)]
    sent = {"long": bench.now()}
    tasks = [bench.send("quick", "long", countdown=18)]
    for tag in tags:
        sent[tag] = bench.now()
        tasks.append(bench.send("quick", tag, countdown=8))

    lasting(2)
    assert bench.broker.depth() == 0, "a message left before it was due"
    assert {str(bench.info(task).state) for task in tasks} == {"waiting"}
    one.kill()

    runs = bench.ledger.wait("run", count=6, within=18 + T)
    bench.wait_ended(*tasks)
    assert bench.times("run", ["long", *tags]) == dict.fromkeys(["long", *tags], 1)
    for line in runs:
        due = sent[line.tag] + (18 if line.tag == "long" else 8)
        assert line.time > due - EARLY, f"{line.tag} ran {due - line.time:.1f} s early"
        bench.recovered(due, line, within=2)


@pytest.mark.case("10")
def test_copies_of_a_message_are_refused_within_a_second(bench: Bench) -> None:
    task = bench.send("quick", "c")
    raw = bench.broker.take()
    assert len(raw) == 1
    bench.broker.put(raw * 3)
    bench.worker("one")
    run = bench.ledger.wait("run", "c", within=T)[0]
    bench.wait_ended(task)
    copies = bench.ledger.wait("refused", count=3, within=T)[:3]
    assert max(line.time for line in copies) < run.time + 1

    lasting(5)
    before = len(bench.ledger.lines("refused"))
    bench.broker.put(raw * 3)
    put = bench.now()
    copies = bench.ledger.wait("refused", count=before + 3, within=T)[before:]
    bench.recovered(put, copies[-1], within=1)
    assert bench.times("run", ["c"]) == {"c": 1}
    wait_for(lambda: bench.broker.depth() == 0, T, "every copy is acked")


@pytest.mark.case("12", own_broker=True)
def test_a_rabbitmq_restart_under_a_running_task_starts_it_once(bench: Bench) -> None:
    bench.launch("one", 1, "-Q", "celery,only-one").wait_ready()
    bench.worker("two", 1, "-Q", "celery,only-two")
    task = bench.send("slow", "k", 14)
    bench.ledger.wait("start", "k", within=T)

    bench.broker.server.control("stop_app")
    bench.broker.server.control("start_app")
    back = bench.now()

    bench.ledger.wait("end", "k", within=14 + T)
    bench.wait_ended(task)
    for name in ("one", "two"):
        bench.wait_ended(bench.send("quick", name, queue=f"only-{name}"))
    assert bench.times("start", ["k"]) == bench.times("end", ["k"]) == {"k": 1}
    assert bench.times("run", ["one", "two"]) == {"one": 1, "two": 1}
    bench.recovered(back, bench.ledger.lines("end", "k")[0], within=14 + T)
