"""What a run enqueues, and what follows it, comes once: however the run or the broker fares."""

from __future__ import annotations

import pytest

from tests.faults.bench import Bench
from tests.faults.business import tokens_of
from tests.faults.ledger import lasting
from tests.faults.setup import T


@pytest.mark.case("18", own_broker=True, aof=True)
def test_a_chain_whose_broker_goes_away_under_its_first_task_goes_on_when_it_is_back(bench: Bench) -> None:
    bench.worker("one")
    slow, quick = bench.app.tasks["slow"], bench.app.tasks["quick"]
    tasks = bench.send_chain(slow.si("one", 2), quick.si("two"))
    bench.ledger.wait("start", "one", within=T)

    bench.broker.server.stop()
    bench.ledger.wait("end", "one", within=2 + T)
    lasting(4)
    bench.broker.server.start()
    back = bench.now()

    bench.recovered(back, bench.ledger.wait("run", "two", within=T)[0], within=T)
    bench.wait_ended(*tasks)
    assert bench.times("start", ["one"]) == bench.times("end", ["one"]) == {"one": 1}
    assert bench.times("run", ["two"]) == {"two": 1}


@pytest.mark.case("18-end")
def test_a_chain_whose_first_task_is_killed_after_its_end_goes_on_once(bench: Bench) -> None:
    bench.worker("one")
    endkill, quick = bench.app.tasks["endkill"], bench.app.tasks["quick"]
    tasks = bench.send_chain(endkill.si("one"), quick.si("two"))

    first, second = bench.ledger.wait("start", "one", count=2, within=T)
    bench.recovered(first.time, second, within=2)
    assert second.token > first.token
    bench.wait_ended(*tasks)
    assert bench.times("run", ["two"]) == {"two": 1}


@pytest.mark.case("20")
def test_a_run_that_is_killed_after_it_enqueued_or_wrote_does_neither_twice(bench: Bench) -> None:
    node = bench.worker("one")
    tasks = [bench.send("fanout", "f"), bench.send("effect", "e")]
    for name in ("two", "three"):
        if bench.at.pool != "prefork":  # the body has killed its worker
            node.may_exit = True
            node.wait_exit(T)
            node = bench.worker(name)

    bench.ledger.wait("start", "f", count=2, within=T)
    bench.ledger.wait("start", "e", count=2, within=T)
    bench.wait_ended(*tasks)
    children = [f"f-{number}" for number in range(3)]
    bench.ledger.wait("run", count=3, within=T)
    assert bench.times("run", children) == dict.fromkeys(children, 1)
    assert _children(bench, tasks[0]) == 3
    assert len(tokens_of(bench.setup.store, "e")) == 1


def _children(bench: Bench, task_id: str) -> int:
    import sqlalchemy as sa

    from argus_celery.store.schema import tasks

    count = sa.select(sa.func.count()).where(tasks.c.parent_id == task_id)
    return int(bench.store.statement(lambda connection: connection.execute(count).scalar_one()))
