"""The timeline of a project: every attempt of every task, who ran it, and how it passed on."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from argus_celery.flow import step
from argus_celery.flow.claim import claim as claim_all
from argus_celery.flow.complete import complete
from argus_celery.flow.lapse import lapse
from argus_celery.flow.release import release
from argus_celery.flow.renew import renew
from argus_celery.flow.restore import free_the_dead, restore, sweep
from argus_celery.records import AttemptOutcome, Delivery, HolderFacts, Outcome, TaskState
from argus_celery.store import holders, timelines
from argus_celery.store.reports import attempt_rows
from argus_celery.store.schema import attempts
from argus_celery.timeline import Timeline
from tests.flow.conftest import FlowBench

DONE = Outcome(TaskState.SUCCEEDED, b"{}")
PROJECT = "import 1"


def boot(bench: FlowBench, holder: str, pid: int = 1) -> None:
    restore(bench.rt, HolderFacts(holder, f"celery@{holder}", "here", pid, "boot", "space", "start"), lambda one: False)


def timeline(bench: FlowBench, limit: int = 100, **more: object) -> Timeline:
    found = timelines.timeline(bench.store, PROJECT, limit, **more)  # type: ignore[arg-type]
    assert found is not None
    return found


def test_it_tells_who_ran_what_and_how_it_ended(bench: FlowBench) -> None:
    boot(bench, "w1")
    done = bench.running("w1", project=PROJECT, key="order-1")
    complete(bench.rt, done, DONE)
    failed = bench.running("w1", project=PROJECT, name="shop.refund")
    complete(bench.rt, failed, Outcome(TaskState.FAILED, error="broke"))
    bench.running("w1")  # of another project
    running = bench.running("w2", project=PROJECT)

    told = timeline(bench)
    first, second, third = told.attempts
    assert (first.task_id, first.name, first.key, first.token) == (done.task_id, "shop.charge", "order-1", done.token)
    assert (first.holder, first.node, first.outcome) == ("w1", "celery@w1", AttemptOutcome.SUCCEEDED)
    assert first.started_at <= first.finished_at <= told.now  # type: ignore[operator]
    assert (second.name, second.outcome, second.detail) == ("shop.refund", AttemptOutcome.FAILED, "broke")
    assert (third.task_id, third.outcome, third.finished_at) == (running.task_id, None, None)
    assert third.node is None  # that worker left no facts
    assert timelines.timeline(bench.store, "import 2", 1) is None
    assert timelines.timeline(bench.store, "import\0", 1) is None


def test_a_lost_run_is_known_to_have_been_held_until_its_last_renewal(bench: FlowBench) -> None:
    boot(bench, "w1")
    bench.running("w1", project=PROJECT)
    bench.pass_time(60)
    sweep(bench.rt)
    bench.claim("w2")
    lost, after = timeline(bench).attempts
    assert (lost.outcome, lost.known_until) == (AttemptOutcome.LOST, lost.started_at)
    assert (lost.died, lost.detail) == (False, "the lease lapsed")
    assert lost.finished_at >= lost.started_at + 60_000  # type: ignore[operator]
    assert timeline(bench).hand_overs == [(lost, after)]


def test_proof_of_death_keeps_the_last_renewal(bench: FlowBench) -> None:
    boot(bench, "w1", pid=4711)
    claim = bench.running("w1", project=PROJECT, lease_ttl_ms=60_000)
    bench.pass_time(20)
    assert renew(bench.rt, "w1", [(claim.task_id, claim.token)]).held
    bench.pass_time(10)
    restore(bench.rt, HolderFacts("w2", "celery@w2", "here", 2, "boot", "space", "start"), lambda one: one.pid == 4711)
    (lost,) = timeline(bench).attempts
    assert (lost.task_id, lost.outcome) == (claim.task_id, AttemptOutcome.LOST)
    assert lost.started_at is not None and lost.known_until is not None
    assert lost.started_at + 20_000 <= lost.known_until <= lost.finished_at - 10_000  # type: ignore[operator]
    assert (lost.died, lost.detail) == (True, "its worker died")


def test_a_dead_worker_is_told_dead_though_its_leases_have_lapsed_before(bench: FlowBench) -> None:
    boot(bench, "w1", pid=4711)
    claim = bench.running("w1", project=PROJECT)
    bench.pass_time(60)
    me = HolderFacts("w2", "celery@w2", "here", 2, "boot", "space", "start")
    assert free_the_dead(bench.rt, me, lambda one: one.pid == 4711) == 1
    assert free_the_dead(bench.rt, me, lambda one: one.pid == 4711) == 0
    sweep(bench.rt)
    (lost,) = timeline(bench).attempts
    assert (lost.died, lost.known_until, lost.task_id) == (True, lost.started_at, claim.task_id)


@pytest.mark.parametrize("dead", [True, False])
def test_a_run_that_noted_steps_was_alive_until_the_last_of_them(bench: FlowBench, dead: bool) -> None:
    boot(bench, "w1", pid=4711)
    claim = bench.running("w1", project=PROJECT)
    for seconds, name in ((0, "one"), (4, "two")):
        bench.pass_time(seconds)
        step.record(bench.rt, claim, name, None)
    bench.pass_time(3 if dead else 60)
    restore(bench.rt, HolderFacts("w2", "celery@w2", "here", 2, "boot", "space", "start"), lambda one: dead)
    (lost,) = timeline(bench).attempts
    assert lost.started_at is not None and lost.known_until is not None and lost.finished_at is not None
    assert lost.started_at + 4_000 <= lost.known_until <= lost.finished_at - 3_000
    (attempt,) = attempt_rows(bench.store, claim.task_id)
    assert (attempt.known_until, attempt.died) == (lost.known_until, lost.died) == (lost.known_until, dead)


def test_a_run_that_showed_progress_was_alive_until_then(bench: FlowBench) -> None:
    boot(bench, "w1", pid=4711)
    delivery = Delivery(bench.enqueue(project=PROJECT, lease_ttl_ms=60_000), 1)
    (claim,) = claim_all(bench.rt, "w1", [delivery], progress_timeout=30)
    assert claim is not None
    bench.pass_time(20)
    assert renew(bench.rt, "w1", [(claim.task_id, claim.token)], progress=True).held
    bench.pass_time(10)
    restore(bench.rt, HolderFacts("w2", "celery@w2", "here", 2, "boot", "space", "start"), lambda one: one.pid == 4711)
    (lost,) = timeline(bench).attempts
    assert lost.started_at is not None and lost.known_until is not None
    assert lost.known_until >= lost.started_at + 20_000 and lost.died


def test_a_child_that_was_seen_to_die_was_held_until_then(bench: FlowBench) -> None:
    claim = bench.running("w1", project=PROJECT)
    bench.pass_time(5)
    lapse(bench.rt, "w1", claim.task_id, claim.token, "the process 4711 was lost")
    (lost,) = timeline(bench).attempts
    assert (lost.known_until, lost.died) == (lost.finished_at, True)


def test_a_run_given_back_is_handed_over_and_a_retry_is_not(bench: FlowBench) -> None:
    given = bench.running("w1", project=PROJECT)
    assert release(bench.rt, "w1", [(given.task_id, given.token)], "the worker stops")
    bench.claim("w2", given.task_id)
    other = bench.running("w1", project=PROJECT)
    complete(bench.rt, other, DONE)
    ((before, after),) = timeline(bench).hand_overs
    assert (before.outcome, before.holder, after.holder) == (AttemptOutcome.RELEASED, "w1", "w2")


def test_a_workers_name_outlives_its_row(bench: FlowBench) -> None:
    boot(bench, "w1")
    complete(bench.rt, bench.running("w1", project=PROJECT), DONE)
    bench.pass_time(2)
    bench.store.transaction(lambda c: holders.forget(bench.store, c, 1_000))
    assert bench.store.statement(lambda c: holders.nodes(c, ["w1"])) == {}
    assert [one.node for one in timeline(bench).attempts] == ["celery@w1"]


def test_an_attempt_noted_by_an_older_version_has_its_workers_name_while_that_is_kept(bench: FlowBench) -> None:
    boot(bench, "w1")
    complete(bench.rt, bench.running("w1", project=PROJECT), DONE)
    bench.store.transaction(lambda c: c.execute(sa.update(attempts).values(node=None)))
    assert [one.node for one in timeline(bench).attempts] == ["celery@w1"]


def test_pages_hold_every_attempt_once_the_newest_first(bench: FlowBench) -> None:
    for _ in range(7):
        complete(bench.rt, bench.running("w1", project=PROJECT), DONE)
    # Of one instant: the id decides.
    bench.store.transaction(lambda c: c.execute(sa.update(attempts).values(started_at=5)))
    bench.running("w1", project=PROJECT)
    pages = [timeline(bench, 3)]
    while pages[-1].earlier is not None:
        pages.append(timeline(bench, 3, before=pages[-1].earlier))
    assert [len(page.attempts) for page in pages] == [4, 3, 1]  # what runs is on the first page
    seen = [one.task_id for page in pages for one in page.attempts]
    assert len(set(seen)) == 8


def test_a_long_detail_is_cut_to_its_end(bench: FlowBench) -> None:
    traceback = "line\n" * 1_000 + "OSError: é"
    complete(bench.rt, bench.running("w1", project=PROJECT), Outcome(TaskState.FAILED, error=traceback))
    (attempt,) = timeline(bench).attempts
    assert attempt.detail == traceback[-timelines.DETAIL :]
