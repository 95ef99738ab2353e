"""A run that has to show progress is renewed only while it does, on every database."""

from __future__ import annotations

import pytest

from argus_celery.errors import LeaseLost
from argus_celery.flow import step
from argus_celery.flow.claim import claim
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.each import Each
from argus_celery.flow.progress import Progress
from argus_celery.flow.release import release
from argus_celery.flow.renew import renew
from argus_celery.flow.transaction import transaction
from argus_celery.records import AttemptOutcome, Claim, Delivery, TaskState
from argus_celery.run import Run
from argus_celery.store import reports
from argus_celery.store.outer.base import outside
from tests.flow.conftest import FlowBench
from tests.store.bench import counted

TIMEOUT = 100.0


def running(bench: FlowBench, holder: str = "w1", timeout: float | None = TIMEOUT) -> Claim:
    """A task whose run has to show progress, on a lease of 30 s."""
    task_id = bench.enqueue(lease_ttl_ms=30_000)
    granted = claim(bench.rt, holder, [Delivery(task_id, bench.sent[-1].token)], progress_timeout=timeout)[0]
    assert granted is not None
    return granted


def held(claim: Claim) -> tuple[str, int]:
    return claim.task_id, claim.token


def renewed_for(bench: FlowBench, claim: Claim, seconds: int) -> bool:
    """Renew every ten seconds for so long; does the claim stand at the end?"""
    for _ in range(seconds // 10):
        bench.pass_time(10)
        renewal = renew(bench.rt, claim.holder, [held(claim)])
    dispatch(bench.rt)
    return not renewal.stalled and bench.lease(claim.task_id).token == claim.token


def test_a_run_that_shows_none_lapses_though_it_is_renewed(bench: FlowBench) -> None:
    one = running(bench)
    assert renewed_for(bench, one, 80)
    bench.pass_time(20)
    renewal = renew(bench.rt, "w1", [held(one)])
    assert (renewal.held, renewal.lost, renewal.stalled) == ({held(one)}, frozenset(), {held(one)})
    assert dispatch(bench.rt).lapsed == (one.task_id,)
    attempt = reports.attempt_rows(bench.store, one.task_id)[0]
    assert attempt.outcome is AttemptOutcome.LOST
    assert attempt.detail == "no progress for 100 s: the lease lapsed"
    assert bench.task(one.task_id).losses == 1
    assert renew(bench.rt, "w1", [held(one)]).lost == {held(one)}


def test_a_run_that_shows_some_goes_on_for_ever(bench: FlowBench) -> None:
    one = running(bench)
    for _ in range(5):
        assert renewed_for(bench, one, 80)
        renew(bench.rt, "w1", [held(one)], progress=True)
    assert renewed_for(bench, one, 80)
    assert not renewed_for(bench, one, 20)


def test_a_run_without_the_option_shows_nothing_and_is_renewed(bench: FlowBench) -> None:
    one = running(bench, timeout=None)
    assert renewed_for(bench, one, 150)
    renew(bench.rt, "w1", [held(one)], progress=True)
    assert bench.lease(one.task_id).progress_until is None


def test_a_dead_worker_is_lost_by_its_lease_long_before(bench: FlowBench) -> None:
    one = running(bench)
    bench.pass_time(31)
    assert dispatch(bench.rt).lapsed == (one.task_id,)
    assert reports.attempt_rows(bench.store, one.task_id)[0].detail == "the lease lapsed"


def test_the_next_run_begins_anew_and_one_that_was_handed_back_owes_nothing(bench: FlowBench) -> None:
    one = running(bench)
    bench.pass_time(5)
    release(bench.rt, "w1", [held(one)], "the worker stopped")
    assert bench.lease(one.task_id).progress_until is None
    again = claim(bench.rt, "w2", [Delivery(one.task_id, bench.sent[-1].token)], progress_timeout=TIMEOUT)[0]
    assert again is not None
    assert renewed_for(bench, again, 80)


def test_a_transaction_is_progress(bench: FlowBench) -> None:
    one = running(bench)
    assert renewed_for(bench, one, 80)
    with transaction(bench.rt, one):
        pass
    assert renewed_for(bench, one, 80)


def test_a_run_that_hangs_with_its_own_row_locked_is_found_all_the_same(bench: FlowBench) -> None:
    if bench.store.dialect_name == "sqlite":
        return  # such a transaction keeps the renewal itself waiting
    one = running(bench)
    bench.pass_time(50)

    def hanging() -> None:
        with transaction(bench.rt, one):
            bench.pass_time(75)
            with outside():  # as its worker
                renewal = renew(bench.rt, "w1", [held(one)])
                assert (renewal.held, renewal.lost, renewal.stalled) == (frozenset(), frozenset(), {held(one)})
                assert not dispatch(bench.rt).lapsed
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        hanging()
    assert dispatch(bench.rt).lapsed == (one.task_id,)


def test_what_a_run_shows_in_its_own_transaction_is_seen_with_the_commit_and_not_before(bench: FlowBench) -> None:
    """The transaction has locked the row: one that is longer than the timeout is a run that hangs."""
    one = running(bench)
    run = Run(bench.rt, one, shown=Progress(1e-9))
    with step.transaction(run.steps):
        for page in range(3):
            bench.pass_time(30)
            run.steps.write({f"page {page}": None})
            run.check()
        if bench.store.dialect_name != "sqlite":
            with outside():  # as its worker
                assert not renew(bench.rt, "w1", [held(one)]).stalled
                bench.pass_time(15)
                assert renew(bench.rt, "w1", [held(one)]).stalled == {held(one)}
    assert renewed_for(bench, one, 80)


def test_a_run_says_that_it_goes_on_at_most_once_in_a_quarter_of_the_timeout(bench: FlowBench) -> None:
    one = running(bench)
    run = Run(bench.rt, one, in_body=True, shown=Progress(TIMEOUT))
    with counted(bench.store) as count:
        for _ in range(100):
            run.progress()
    assert count.statements == 0
    run.shown = Progress(1e-9)
    assert renewed_for(bench, one, 80)
    run.progress()
    assert renewed_for(bench, one, 80)


def test_in_its_own_transaction_a_run_says_nothing_and_does_not_wait_for_itself(bench: FlowBench) -> None:
    one = running(bench)
    run = Run(bench.rt, one, in_body=True, shown=Progress(1e-9))
    with step.transaction(run.steps), counted(bench.store) as count:
        run.progress()
    assert count.statements == 0


def test_finished_steps_and_items_are_progress(bench: FlowBench) -> None:
    one = running(bench)
    run = Run(bench.rt, one, in_body=True, shown=Progress(1e-9))
    assert renewed_for(bench, one, 80)
    run.steps.write({"fetch": None})
    assert renewed_for(bench, one, 40)
    for _ in Each(run.steps, ["a", "b", "c"], "each", 10, None):
        assert renewed_for(bench, one, 50)


def test_a_check_is_progress_and_both_raise_when_the_lease_is_lost(bench: FlowBench) -> None:
    one = running(bench)
    run = Run(bench.rt, one, in_body=True, shown=Progress(TIMEOUT))
    assert renewed_for(bench, one, 80)
    run.check()
    assert renewed_for(bench, one, 80)
    assert not renewed_for(bench, one, 20)
    with pytest.raises(LeaseLost):
        run.check()
    with pytest.raises(LeaseLost):
        run.progress()


def test_progress_that_the_store_did_not_hear_is_said_again(bench: FlowBench) -> None:
    one = running(bench)
    run = Run(bench.rt, one, in_body=True, shown=Progress(1e-9))
    bench.store.away = True
    run.progress()
    bench.store.away = False
    assert run.shown.is_due
    assert renewed_for(bench, one, 80)
    run.progress()
    assert renewed_for(bench, one, 80)


def test_too_many_of_such_runs_make_a_dead_letter_that_says_why(bench: FlowBench) -> None:
    task_id = running(bench).task_id
    for number in range(1, 6):
        assert bench.task(task_id).losses == number - 1
        bench.pass_time(101)
        renew(bench.rt, "w1", [(task_id, bench.lease(task_id).token)])
        dispatch(bench.rt)
        if number < 5:
            claim(bench.rt, "w1", [Delivery(task_id, bench.sent[-1].token)], progress_timeout=TIMEOUT)
    ended = reports.task_info(bench.store, task_id)
    assert ended is not None
    assert ended.state is TaskState.DEAD
    assert "no progress for 100 s" in (ended.error or "")
