"""Rule 16: READ COMMITTED, one lock order, conflicts repeated whole: no error of a database reaches a caller."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from argus_celery.errors import LeaseLost
from argus_celery.flow.claim import claim
from argus_celery.flow.complete import complete_many
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.enqueue import enqueue
from argus_celery.flow.lapse import lapse
from argus_celery.flow.release import release
from argus_celery.flow.renew import renew
from argus_celery.flow.restore import sweep
from argus_celery.flow.retry import retry
from argus_celery.flow.steer import close, pause, resume
from argus_celery.records import Claim, Delivery, Outcome, TaskState
from tests.flow.conftest import FlowBench
from tests.invariants import check_all_ended
from tests.services.server import wait_until
from tests.store.bench import new_task

SECONDS = 2.0


def test_servers_are_asked_for_read_committed(bench: FlowBench) -> None:
    if bench.store.dialect_name == "sqlite":
        return  # it has one writer at a time, which is more
    with bench.store.engine.connect() as connection:
        assert connection.get_isolation_level() == "READ COMMITTED"


def test_of_many_that_claim_the_same_copies_at_once_each_copy_is_granted_once(bench: FlowBench) -> None:
    deliveries = [Delivery(one.task_id, 1) for one in enqueue(bench.rt, [new_task() for _ in range(40)])]

    def take(holder: str) -> list[Claim | None]:
        mine = random.sample(deliveries, len(deliveries))
        return claim(bench.rt, holder, mine)

    with ThreadPoolExecutor(6) as pool:
        granted = [one for claims in pool.map(take, [f"w{n}" for n in range(6)]) for one in claims if one]
    assert sorted(one.task_id for one in granted) == sorted(one.task_id for one in deliveries)


def test_ten_sweeps_at_once_dispatch_each_lapsed_row_once(bench: FlowBench) -> None:
    ids = [one.task_id for one in enqueue(bench.rt, [new_task() for _ in range(100)])]
    claim(bench.rt, "w1", [Delivery(task_id, 1) for task_id in ids])
    bench.pass_time(7)
    bench.sent.clear()
    with ThreadPoolExecutor(10) as pool:
        reports = list(pool.map(lambda _: sweep(bench.rt), range(10)))
    assert sorted(task_id for one in reports for task_id in one.dispatched) == sorted(ids)
    assert sorted(one.task_id for one in bench.sent) == sorted(ids)
    assert not sweep(bench.rt).dispatched


@pytest.mark.slow
def test_workers_sweepers_and_people_at_once_meet_no_error_and_lose_no_task(bench: FlowBench) -> None:
    crowd = Crowd(bench)
    roles = [crowd.produce, crowd.work, crowd.work, crowd.work, crowd.sweep, crowd.steer]
    until = time.monotonic() + SECONDS
    with ThreadPoolExecutor(len(roles)) as pool:
        running = [pool.submit(crowd.repeat, role, number, until) for number, role in enumerate(roles)]
    for one in running:
        one.result()
    crowd.drain()


class Crowd:
    """Threads that do what workers, producers, sweepers and people do, on one store and one broker."""

    def __init__(self, bench: FlowBench) -> None:
        self.bench, self.rt = bench, bench.rt
        enqueue(self.rt, [new_task()])

    def repeat(self, role: Callable[[random.Random, str], None], number: int, until: float) -> None:
        rng = random.Random(number)
        while time.monotonic() < until:
            role(rng, f"w{number}")

    def produce(self, rng: random.Random, holder: str) -> None:
        enqueue(self.rt, [new_task(key=rng.choice((None, "a", "b"))) for _ in range(rng.randint(1, 5))])

    def work(self, rng: random.Random, holder: str) -> None:
        queue = self.bench.sent
        batch = [queue.pop() for _ in range(min(len(queue), rng.randint(1, 8)))] if len(queue) > 20 else queue[-8:]
        claims = [one for one in claim(self.rt, holder, [Delivery(d.task_id, d.token) for d in batch]) if one]
        rng.shuffle(claims)
        names = [(one.task_id, one.token) for one in claims]
        renew(self.rt, holder, names)
        share = len(claims) // 4
        release(self.rt, holder, names[:share], "shutdown")
        for one in claims[share : 2 * share]:
            lapse(self.rt, holder, one.task_id, one.token, "signal 9")
        for one in claims[2 * share : 3 * share]:
            self._retry(one)
        ending = [(one, self._outcome(one, rng)) for one in claims[3 * share :]]
        if ending:
            complete_many(self.rt, ending)

    def _retry(self, one: Claim) -> None:
        try:
            retry(self.rt, one, new_task(id=one.task_id))
        except LeaseLost:
            pass

    def _outcome(self, one: Claim, rng: random.Random) -> Outcome:
        children = [new_task(project_id=one.project_id, inside=True)] if rng.random() < 0.2 else []
        return Outcome(TaskState.SUCCEEDED, continuations=tuple(children))

    def sweep(self, rng: random.Random, holder: str) -> None:
        self.bench.pass_time(0.2)
        sweep(self.rt)

    def steer(self, rng: random.Random, holder: str) -> None:
        pause(self.rt, "default")
        resume(self.rt, "default")

    def drain(self) -> None:
        close(self.rt, "default")
        assert wait_until(self._drained, 60)
        sweep(self.rt)
        check_all_ended(self.bench.store)

    def _drained(self) -> bool:
        self.bench.pass_time(31)
        dispatch(self.rt)
        batch, self.bench.sent[:] = list(self.bench.sent), []
        claims = [one for one in claim(self.rt, "w9", [Delivery(d.task_id, d.token) for d in batch]) if one]
        if claims:
            complete_many(self.rt, [(one, Outcome(TaskState.SUCCEEDED)) for one in claims])
        return not claims and not dispatch(self.rt).more and not self.bench.sent
