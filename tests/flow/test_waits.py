"""A run that waits ends, and its task goes on when the wait is over: by its instant, or by the event."""

from __future__ import annotations

from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
import sqlalchemy as sa

from argus_celery import signals
from argus_celery.errors import LeaseLost, ProjectClosed, ProjectNotFound
from argus_celery.flow import verdict
from argus_celery.flow.complete import complete
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.mend import mend
from argus_celery.flow.prune import Pruning
from argus_celery.flow.release import release
from argus_celery.flow.restore import sweep
from argus_celery.flow.retry import retry
from argus_celery.flow.revoke import revoke
from argus_celery.flow.steer import cancel, close, open_project, pause, resume
from argus_celery.flow.suspend import Wait, suspend
from argus_celery.flow.tell import tell
from argus_celery.flow.verdict import Verdict, decide
from argus_celery.records import AttemptOutcome, Bound, Claim, Outcome, Suspension, TaskInfo, TaskState
from argus_celery.store import reports, waits
from argus_celery.store.events import drop_unsent
from argus_celery.store.pruning import Ages
from argus_celery.store.schema import events, steps
from argus_celery.store.schema import waits as waits_table
from tests.flow.conftest import FlowBench
from tests.flow.faults import meanwhile
from tests.store.bench import counted, new_task

DONE = Outcome(TaskState.SUCCEEDED, b"{}")
DAY = 24 * 3600


def info(bench: FlowBench, task_id: str) -> TaskInfo:
    found = reports.task_info(bench.store, task_id)
    assert found is not None
    return found


def sleeping(bench: FlowBench, seconds: float = 3600, **more: Any) -> Claim:
    claim = bench.running(**more)
    suspend(bench.rt, claim, Wait("sleep", delay_ms=round(seconds * 1000)))
    return claim


def awaiting(bench: FlowBench, event: str = "approved", seconds: float | None = None, **more: Any) -> Claim:
    claim = bench.running(**more)
    wait_for(bench, claim, event, seconds)
    return claim


def wait_for(bench: FlowBench, claim: Claim, event: str = "approved", seconds: float | None = None) -> None:
    delay = None if seconds is None else round(seconds * 1000)
    suspend(bench.rt, claim, Wait(f"wait {event}", event, delay_ms=delay))


def again(bench: FlowBench, task_id: str) -> Claim:
    claim = bench.claim("w2", task_id)
    assert claim is not None
    return claim


def decided(bench: FlowBench, claim: Claim, event: str = "approved") -> Verdict:
    found = verdict.read(step(bench, claim.task_id, f"wait {event}"))
    return found if found.decided else decide(bench.rt, claim, f"wait {event}", event, found.until)


def step(bench: FlowBench, task_id: str, name: str) -> bytes:
    query = sa.select(steps.c.value).where(steps.c.task_id == task_id, steps.c.name == name)
    return bytes(bench.store.statement(lambda c: c.execute(query).scalar_one()))


def count(bench: FlowBench, table: sa.Table) -> int:
    return int(bench.store.statement(lambda c: c.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()))


# --- sleeping -----------------------------------------------------------------------------------------------------


def test_who_sleeps_is_dispatched_at_the_instant_and_not_before(bench: FlowBench) -> None:
    claim = sleeping(bench, 3600)
    bench.pass_time(1800)
    assert dispatch(bench.rt).dispatched == ()
    bench.pass_time(1801)
    assert dispatch(bench.rt).dispatched == (claim.task_id,)
    complete(bench.rt, again(bench, claim.task_id), DONE)
    assert info(bench, claim.task_id).state is TaskState.SUCCEEDED


def test_a_suspension_is_an_attempt_and_neither_a_loss_nor_a_retry(bench: FlowBench) -> None:
    claim = sleeping(bench)
    [attempt] = reports.attempt_rows(bench.store, claim.task_id)
    assert (attempt.outcome, attempt.token) == (AttemptOutcome.SUSPENDED, claim.token)
    assert attempt.detail is not None
    assert attempt.detail.startswith("sleeps until ")
    task = info(bench, claim.task_id)
    assert (task.attempts, task.losses, task.retries, task.state) == (1, 0, 0, TaskState.WAITING)


def test_the_instant_counts_from_when_the_wait_was_reached(bench: FlowBench) -> None:
    claim = bench.running()
    wait = Wait("sleep", delay_ms=60_000)
    object.__setattr__(wait, "reached", wait.reached - 50)  # so long did the body take to unwind
    suspend(bench.rt, claim, wait)
    bench.pass_time(11)
    assert dispatch(bench.rt).dispatched == (claim.task_id,)


def test_what_a_task_waits_for_is_shown_with_its_times_while_it_does(bench: FlowBench) -> None:
    claim = awaiting(bench, seconds=60)
    found = info(bench, claim.task_id).suspended
    assert found is not None
    assert (found.event, found.until) == ("approved", found.since + 60_000)
    project = reports.project_info(bench.store, "default")
    assert project is not None
    assert (project.counts[TaskState.WAITING], project.suspended) == (1, 1)
    bench.pass_time(61)
    dispatch(bench.rt)
    assert info(bench, claim.task_id).suspended is None
    asleep = sleeping(bench)
    shown = info(bench, asleep.task_id).suspended
    assert isinstance(shown, Suspension)
    assert shown.event is None


def test_a_task_that_has_begun_does_not_expire_while_it_waits(bench: FlowBench) -> None:
    claim = sleeping(bench, 3600, expires_in_ms=60_000)
    bench.pass_time(3601)
    report = dispatch(bench.rt)
    assert (report.dispatched, report.expired) == ((claim.task_id,), ())


def test_a_retry_has_an_expiry_behind_a_wait_only_if_it_names_one(bench: FlowBench) -> None:
    """Without a wait it has that of its run, as in Celery."""
    names_none, names_one = (sleeping(bench, 3600, expires_in_ms=60_000) for _ in range(2))
    bench.pass_time(3601)
    dispatch(bench.rt)
    never_waited = bench.running(expires_in_ms=60_000)
    as_before = {"delay_ms": 100_000, "expires_as_before": True}
    for claim in (again(bench, names_none.task_id), never_waited):
        retry(bench.rt, claim, new_task(id=claim.task_id, **as_before))
    retry(
        bench.rt, again(bench, names_one.task_id), new_task(id=names_one.task_id, delay_ms=9_000, expires_in_ms=5_000)
    )
    bench.pass_time(101)
    report = dispatch(bench.rt)
    assert report.dispatched == (names_none.task_id,)
    assert set(report.expired) == {names_one.task_id, never_waited.task_id}


# --- events -------------------------------------------------------------------------------------------------------


def test_an_event_wakes_who_waits_for_it_at_once_and_they_read_its_payload(bench: FlowBench) -> None:
    claims = [awaiting(bench) for _ in range(3)]
    elsewhere = awaiting(bench, project="another")
    assert tell(bench.rt, "default", "approved", b"yes")
    assert sorted(one.task_id for one in bench.sent[-3:]) == sorted(claim.task_id for claim in claims)
    for claim in claims:
        assert decided(bench, again(bench, claim.task_id)) == Verdict(decided=True, payload=b"yes")
    assert bench.lease(elsewhere.task_id).eligible_at == waits.NEVER


def test_an_event_is_told_once_and_the_first_stands(bench: FlowBench) -> None:
    open_project(bench.rt, "default")
    assert tell(bench.rt, "default", "approved", b"yes")
    assert not tell(bench.rt, "default", "approved", b"no")
    claim = bench.running()
    assert verdict.look(bench.rt, claim, "approved") == b"yes"


def test_an_event_that_came_between_the_look_and_the_suspension_wakes_at_once(bench: FlowBench) -> None:
    claim = bench.running()
    tell(bench.rt, "default", "approved", b"yes")
    wait_for(bench, claim)
    assert bench.sent[-1].task_id == claim.task_id
    assert decided(bench, again(bench, claim.task_id)).payload == b"yes"
    assert count(bench, waits_table) == 0


def test_a_suspension_under_way_is_waited_for_by_who_tells(bench: FlowBench, other: FlowBench) -> None:
    """No lost wake-up: the event's row is locked by both."""
    from argus_celery.flow.suspend import _write

    claim = bench.running()

    def suspending(connection: Any) -> None:
        _write(bench.rt, connection, claim, Wait("wait approved", "approved"))

    assert meanwhile(bench.store, suspending, lambda: tell(other.rt, "default", "approved", b"yes"))
    assert bench.sent[-1].task_id == claim.task_id
    assert decided(bench, again(bench, claim.task_id)).payload == b"yes"


def test_a_telling_under_way_is_waited_for_by_who_suspends(bench: FlowBench, other: FlowBench) -> None:
    from argus_celery.flow.tell import _write

    claim = bench.running()

    def telling(connection: Any) -> None:
        _write(other.rt, connection, "default", "approved", b"yes")

    meanwhile(bench.store, telling, lambda: wait_for(bench, claim))
    assert bench.sent[-1].task_id == claim.task_id
    assert decided(bench, again(bench, claim.task_id)).payload == b"yes"


def test_an_event_whose_row_is_dropped_between_the_look_and_the_lock_is_told_all_the_same(
    bench: FlowBench, other: FlowBench
) -> None:
    """Another has noted it meanwhile, and it is pruned again, for nobody waits."""
    if bench.store.dialect_name == "sqlite":
        return  # the transaction is the only writer
    claim, row = bench.running(), {"project_id": 1, "name": "approved"}
    rows = bench.store.dialect.insert_or_lock

    def insert(connection: Any, table: Any, new: Any) -> None:
        other.store.transaction(lambda c: rows(c, table, [row]))
        rows(connection, table, new)
        dropping.append(pool.submit(other.store.transaction, lambda c: drop_unsent(c, 10)))
        futures.wait(dropping, timeout=0.5)  # it waits for the commit

    dropping: list[Any] = []
    with ThreadPoolExecutor(1) as pool, pytest.MonkeyPatch.context() as patched:
        patched.setattr(bench.store.dialect, "insert_or_lock", insert)
        assert tell(bench.rt, "default", "approved", b"yes")
        dropping[0].result(30)
    assert verdict.look(bench.rt, claim, "approved") == b"yes"


def test_of_two_who_tell_at_once_one_has_told_and_who_waits_meanwhile_is_woken_and_reads_that(
    bench: FlowBench, other: FlowBench
) -> None:
    for number in range(12):
        claim, event = bench.running(), f"event {number}"
        together = Barrier(4)

        def at_once(call: Any, together: Barrier = together) -> Any:
            together.wait(30)
            return call()

        with ThreadPoolExecutor(4) as pool:
            told = [
                pool.submit(at_once, lambda rt=rt, name=name, event=event: tell(rt, "default", event, name))
                for rt, name in ((bench.rt, b"one"), (other.rt, b"two"))
            ]
            rest = [
                pool.submit(at_once, lambda event=event, claim=claim: wait_for(bench, claim, event)),
                pool.submit(at_once, lambda: other.store.transaction(lambda c: drop_unsent(c, 10))),
            ]
            winner = [one.result(30) for one in told]
            assert [one.exception(30) for one in rest] == [None, None]
        assert sorted(winner) == [False, True]
        assert claim.task_id in {one.task_id for one in bench.sent[-2:]}
        found = decided(bench, again(bench, claim.task_id), event)
        assert found.payload == (b"one" if winner[0] else b"two")


def test_a_timeout_ends_the_wait_and_every_later_run_reads_the_same(bench: FlowBench) -> None:
    claim = awaiting(bench, seconds=60)
    bench.pass_time(61)
    dispatch(bench.rt)
    second = again(bench, claim.task_id)
    assert decided(bench, second) == Verdict(decided=True)
    tell(bench.rt, "default", "approved", b"too late")
    release(bench.rt, "w2", [(second.task_id, second.token)], "the worker stops")
    assert decided(bench, again(bench, claim.task_id)) == Verdict(decided=True)


def test_an_event_in_time_counts_though_no_worker_was_free_before_the_timeout(bench: FlowBench) -> None:
    early, late = awaiting(bench, "early", 3600), awaiting(bench, "late", 3600)
    bench.pass_time(1800)
    tell(bench.rt, "default", "early", b"yes")
    bench.pass_time(3600)
    tell(bench.rt, "default", "late", b"yes")
    dispatch(bench.rt)
    assert decided(bench, again(bench, early.task_id), "early").payload == b"yes"
    assert decided(bench, again(bench, late.task_id), "late").payload is None


def test_who_is_resumed_too_early_goes_on_waiting_until_the_same_instant(bench: FlowBench) -> None:
    claim = awaiting(bench, seconds=60)
    until = bench.lease(claim.task_id).eligible_at
    bench.store.transaction(lambda c: bench_wake(bench, c, claim.task_id))
    dispatch(bench.rt)
    second = again(bench, claim.task_id)
    found = decided(bench, second)
    assert found == Verdict(until=until)
    suspend(bench.rt, second, Wait("wait approved", "approved", until=found.until))
    assert bench.lease(claim.task_id).eligible_at == until


def bench_wake(bench: FlowBench, connection: Any, task_id: str) -> None:
    from argus_celery.store import leases

    leases.wake(bench.store, connection, [task_id])


def test_more_than_one_transaction_of_waiting_tasks_are_all_woken(
    bench: FlowBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("argus_celery.flow.tell.AT_ONCE", 2)
    ids = {awaiting(bench).task_id for _ in range(5)}
    bench.sent.clear()
    assert tell(bench.rt, "default", "approved", b"yes")
    assert {one.task_id for one in bench.sent} == ids


def test_the_slow_sweep_wakes_whom_a_crash_of_the_teller_has_left(
    bench: FlowBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = {awaiting(bench).task_id for _ in range(5)}
    with monkeypatch.context() as patched:
        patched.setattr("argus_celery.flow.tell.AT_ONCE", 2)
        patched.setattr("argus_celery.flow.tell.wake", lambda *_: 0)
        tell(bench.rt, "default", "approved", b"yes")
    assert mend(bench.rt) == 3
    assert {one.task_id for one in bench.sent} == ids
    assert mend(bench.rt) == 0


# --- the claim ----------------------------------------------------------------------------------------------------


def test_a_run_that_has_lost_its_lease_suspends_nothing(bench: FlowBench) -> None:
    claim = bench.running()
    bench.pass_time(7)
    dispatch(bench.rt)
    newer = again(bench, claim.task_id)
    with pytest.raises(LeaseLost):
        wait_for(bench, claim)
    with pytest.raises(LeaseLost):
        decide(bench.rt, claim, "wait approved", "approved", 0)
    assert (count(bench, steps), count(bench, events), count(bench, waits_table)) == (0, 0, 0)
    complete(bench.rt, newer, DONE)


def test_a_commit_whose_answer_was_lost_is_a_suspension(bench: FlowBench) -> None:
    for wait in (Wait("sleep", delay_ms=60_000), Wait("wait approved", "approved")):
        claim = bench.running()
        bench.store.lose_answers = 1
        suspend(bench.rt, claim, wait)
        assert len(reports.attempt_rows(bench.store, claim.task_id)) == 1
        assert info(bench, claim.task_id).suspended is not None


def test_a_suspension_waits_for_a_store_that_is_away(bench: FlowBench) -> None:
    claim = bench.running()
    bench.store.lose_answers = 3
    suspend(bench.rt, claim, Wait("sleep", delay_ms=60_000))
    assert info(bench, claim.task_id).suspended is not None


def test_a_wait_and_an_event_are_a_transaction_each_and_a_few_statements(bench: FlowBench) -> None:
    asleep, waiting = bench.running(), bench.running()
    with counted(bench.store) as count:
        suspend(bench.rt, asleep, Wait("sleep", delay_ms=60_000))
    assert (count.transactions, count.statements <= 14) == (1, True), count
    with counted(bench.store) as count:
        wait_for(bench, waiting)
    assert (count.transactions, count.statements <= 17) == (1, True), count
    with counted(bench.store) as count:
        tell(bench.rt, "default", "approved", b"yes")
    assert (count.transactions, count.statements <= 19) == (1, True), count
    with counted(bench.store) as count:
        tell(bench.rt, "default", "approved", b"yes")
    assert (count.transactions, count.statements <= 5) == (1, True), count


# --- steering -----------------------------------------------------------------------------------------------------


def test_who_waits_leaves_its_slot_to_others_and_stands_in_line_again(bench: FlowBench) -> None:
    one = (Bound("one", 1),)
    first = bench.running(limits=one)
    second = bench.enqueue(limits=one)
    assert bench.sent[-1].task_id == first.task_id
    wait_for(bench, first)
    holding = again(bench, second)
    tell(bench.rt, "default", "approved", b"yes")
    assert bench.sent[-1].task_id == second
    complete(bench.rt, holding, DONE)
    assert decided(bench, again(bench, first.task_id)).payload == b"yes"


def test_a_paused_project_starts_nothing_though_the_wait_is_over(bench: FlowBench) -> None:
    asleep, waiting = sleeping(bench, 60), awaiting(bench)
    pause(bench.rt, "default")
    bench.pass_time(61)
    assert tell(bench.rt, "default", "approved", b"yes")
    bench.sent.clear()
    assert (dispatch(bench.rt).dispatched, mend(bench.rt), bench.sent) == ((), 0, [])
    resume(bench.rt, "default")
    assert set(dispatch(bench.rt).dispatched) == {asleep.task_id, waiting.task_id}
    assert decided(bench, again(bench, waiting.task_id)).payload == b"yes"


def test_who_suspends_in_a_project_that_was_paused_meanwhile_stays_parked(bench: FlowBench) -> None:
    claim = bench.running()
    pause(bench.rt, "default")
    suspend(bench.rt, claim, Wait("sleep", delay_ms=60_000))
    bench.pass_time(61)
    assert dispatch(bench.rt).dispatched == ()
    resume(bench.rt, "default")
    assert dispatch(bench.rt).dispatched == (claim.task_id,)


def test_a_pause_and_a_resume_do_not_end_a_wait(bench: FlowBench) -> None:
    claim = sleeping(bench, 3600)
    pause(bench.rt, "default")
    resume(bench.rt, "default")
    assert dispatch(bench.rt).dispatched == ()
    assert info(bench, claim.task_id).suspended is not None


def test_a_cancelled_project_ends_what_waits_and_is_told_nothing_more(bench: FlowBench) -> None:
    waiting = awaiting(bench)
    running = bench.running()
    cancel(bench.rt, "default")
    assert info(bench, waiting.task_id).state is TaskState.CANCELLED
    suspend(bench.rt, running, Wait("sleep", delay_ms=60_000))
    assert info(bench, running.task_id).state is TaskState.CANCELLED
    with pytest.raises(ProjectClosed, match="cancelled"):
        tell(bench.rt, "default", "approved", b"yes")
    with pytest.raises(ProjectNotFound):
        tell(bench.rt, "nowhere", "approved", b"yes")


def test_a_closed_project_is_told_and_completes_when_what_waits_is_done(bench: FlowBench) -> None:
    claim = awaiting(bench)
    close(bench.rt, "default")
    sweep(bench.rt)
    assert tell(bench.rt, "default", "approved", b"yes")
    complete(bench.rt, again(bench, claim.task_id), DONE)
    sweep(bench.rt)
    project = reports.project_info(bench.store, "default")
    assert project is not None
    assert project.status == "completed"


def test_a_revoked_task_waits_no_more(bench: FlowBench) -> None:
    claim = awaiting(bench)
    revoke(bench.rt, [claim.task_id])
    assert info(bench, claim.task_id).state is TaskState.CANCELLED
    bench.sent.clear()
    assert tell(bench.rt, "default", "approved", b"yes")
    assert bench.sent == []


# --- pruning ------------------------------------------------------------------------------------------------------


def test_what_was_told_and_waited_for_goes_with_its_project(bench: FlowBench) -> None:
    ages = Ages(DAY * 1000, DAY * 1000)
    claim = awaiting(bench, project="old")
    tell(bench.rt, "old", "approved", b"yes")
    complete(bench.rt, again(bench, claim.task_id), DONE)
    sleeper = sleeping(bench, 60, project="old")
    bench.pass_time(61)
    dispatch(bench.rt)
    complete(bench.rt, again(bench, sleeper.task_id), DONE)
    close(bench.rt, "old")
    open_project(bench.rt, "newer")
    bench.pass_time(2 * DAY)
    Pruning(bench.rt, lambda: ages).run_once()
    assert (count(bench, events), count(bench, waits_table), count(bench, steps)) == (0, 0, 0)


def test_an_event_that_nobody_waits_for_any_more_is_forgotten_and_one_that_was_told_is_not(bench: FlowBench) -> None:
    ages = Ages(DAY * 1000, DAY * 1000)
    claim = awaiting(bench, "never", seconds=60)
    awaiting(bench, "awaited")
    tell(bench.rt, "default", "told", b"yes")
    bench.pass_time(61)
    dispatch(bench.rt)
    decided(bench, again(bench, claim.task_id), "never")
    Pruning(bench.rt, lambda: ages).run_once()
    names = bench.store.statement(lambda c: set(c.execute(sa.select(events.c.name)).scalars()))
    assert names == {"awaited", "told"}


def test_facts_are_reported_behind_their_commits(bench: FlowBench) -> None:
    heard: list[Any] = []

    def suspended(sender: Any, **facts: Any) -> None:
        heard.append((facts["task_id"], facts["waits_for"]))

    def told(sender: Any, **facts: Any) -> None:
        heard.append((facts["project"], facts["name"]))

    signals.task_suspended.connect(suspended)
    signals.project_told.connect(told)
    try:
        claim = awaiting(bench)
        tell(bench.rt, "default", "approved", b"yes")
        tell(bench.rt, "default", "approved", b"no")
    finally:
        signals.task_suspended.disconnect(suspended)
        signals.project_told.disconnect(told)
    assert heard == [(claim.task_id, "approved"), ("default", "approved")]
