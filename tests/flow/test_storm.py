"""A storm: threads claim, finish, fail, retry, give back and die while the project is paused, stopped and cancelled."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from argus_celery.errors import LeaseLost
from argus_celery.flow.claim import claim
from argus_celery.flow.complete import complete
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.release import release
from argus_celery.flow.renew import renew
from argus_celery.flow.restore import sweep
from argus_celery.flow.retry import retry
from argus_celery.flow.steer import cancel, open_project, pause, resume
from argus_celery.records import Claim, Delivery, Outcome, TaskState
from tests.flow.conftest import FlowBench
from tests.invariants import check_all_ended
from tests.store.bench import new_task

ROUNDS, THREADS = 12, 3


@dataclass
class Storm:
    """What the threads saw, by one clock."""

    bench: FlowBench
    stop: threading.Event = field(default_factory=threading.Event)
    grants: list[tuple[float, float, str]] = field(default_factory=list)
    """When a claim that was granted was asked for and answered, and its task."""
    held: list[Claim] = field(default_factory=list)
    """Of runs that died without a word."""
    errors: list[BaseException] = field(default_factory=list)

    def work(self, name: str, dice: random.Random) -> None:
        try:
            while not self.stop.is_set():
                if self.bench.sent:
                    self.run_one(name, dice)
                time.sleep(0.002)
        except BaseException as error:
            self.errors.append(error)

    def run_one(self, name: str, dice: random.Random) -> None:
        """A message that the broker has, or a copy of one that it had."""
        message = dice.choice(self.bench.sent[-40:])
        asked = time.monotonic()
        granted = claim(self.bench.rt, name, [Delivery(message.task_id, message.token)])[0]
        if granted is None:
            return
        self.grants.append((asked, time.monotonic(), granted.task_id))
        time.sleep(dice.random() / 100)
        try:
            self.end(granted, dice.random())
        except LeaseLost:
            pass

    def end(self, run: Claim, chance: float) -> None:
        rt = self.bench.rt
        child = new_task(project_id=run.project_id, inside=True)
        if chance < 0.4:
            complete(rt, run, Outcome(TaskState.SUCCEEDED, continuations=(child,)))
        elif chance < 0.6:
            complete(rt, run, Outcome(TaskState.FAILED, error="broke"))
        elif chance < 0.75:
            retry(rt, run, new_task(id=run.task_id))
        elif chance < 0.85:
            release(rt, run.holder, [(run.task_id, run.token)], "shutdown")
        else:
            self.held.append(run)


def test_nothing_is_lost_and_nothing_runs_that_was_paused_or_cancelled_whatever_dies(bench: FlowBench) -> None:
    storm, dice = Storm(bench), random.Random(20)
    open_project(bench.rt, "default")
    accepted = {bench.enqueue(max_losses=50) for _ in range(20)}
    threads = [
        threading.Thread(target=storm.work, args=(f"w{n}", random.Random(n)), daemon=True) for n in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    try:
        pauses = [_paused(storm, dice, accepted) for _ in range(ROUNDS)]
        cancel(bench.rt, "default")
        cancelled_at = time.monotonic()
        _soon(lambda: dispatch(bench.rt), 0.1)
    finally:
        storm.stop.set()
        for thread in threads:
            thread.join()
    assert not storm.errors
    late = [task for asked, _, task in storm.grants if asked >= cancelled_at]
    late += [task for asked, got, task in storm.grants for since, until in pauses if since <= asked and got <= until]
    assert not late
    for run in storm.held:
        renew(bench.rt, run.holder, [(run.task_id, run.token)])
    for _ in range(3):  # after a moment in which the store was away workers are given time to renew
        bench.pass_time(700)
        sweep(bench.rt)
    check_all_ended(bench.store)
    assert all(bench.task(one).outcome for one in accepted)


def _paused(storm: Storm, dice: random.Random, accepted: set[str]) -> tuple[float, float]:
    """Some runs, a lapse of what died, a pause with or without a stop; when it held."""
    bench, before = storm.bench, len(storm.grants)
    accepted.update(bench.enqueue(max_losses=50) for _ in range(3))
    while len(storm.grants) < before + 2 and not storm.errors:
        _soon(lambda: dispatch(bench.rt), 0.02)
    bench.pass_time(dice.choice((0, 0, 7)))
    pause(bench.rt, "default", stop=dice.random() < 0.5)
    since = time.monotonic()
    _soon(lambda: dispatch(bench.rt), 0.02)
    until = time.monotonic()
    resume(bench.rt, "default")
    dispatch(bench.rt)
    return since, until


def _soon(work: Callable[[], object], seconds: float) -> None:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        work()
        time.sleep(0.005)
