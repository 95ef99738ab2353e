"""A revoked task ends at once and is never run again, whatever it met: a queue, a run, a retry, or nothing yet."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from argus_celery.errors import BadTask, LeaseLost
from argus_celery.flow.claim import claim
from argus_celery.flow.complete import complete
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.enqueue import enqueue
from argus_celery.flow.renew import renew
from argus_celery.flow.retry import park, retry
from argus_celery.flow.revive import Knowledge, retry_failed
from argus_celery.flow.revoke import cancelled, meet, revoke, revoke_stamps
from argus_celery.flow.steer import open_project
from argus_celery.records import AttemptOutcome, Delivery, Outcome, TaskState
from argus_celery.store import leases, reports, revoked
from tests.flow.conftest import FlowBench
from tests.flow.faults import meanwhile
from tests.invariants import check_all_ended
from tests.store.bench import new_task

DONE = Outcome(TaskState.SUCCEEDED, b"{}")


def outcome(bench: FlowBench, task_id: str) -> str | None:
    return None if bench.task(task_id) is None else bench.task(task_id).outcome


def attempts(bench: FlowBench, task_id: str) -> list[AttemptOutcome]:
    return [one.outcome for one in reports.attempt_rows(bench.store, task_id)]


def marks(bench: FlowBench, *ids: str) -> set[str]:
    return bench.store.statement(lambda c: revoked.marked(c, ids))


@pytest.mark.parametrize("how", [{}, {"delay_ms": 60_000}], ids=["queued", "scheduled"])
def test_a_task_that_waits_is_cancelled_at_once_and_never_claimed(bench: FlowBench, how: dict[str, int]) -> None:
    task_id = bench.enqueue(**how)
    assert revoke(bench.rt, [task_id]).ended == {task_id}
    assert (outcome(bench, task_id), bench.task(task_id).error) == (TaskState.CANCELLED, "revoked")
    bench.pass_time(100)
    assert dispatch(bench.rt).dispatched == ()
    assert claim(bench.rt, "w1", [Delivery(task_id, 1)]) == [None]
    assert attempts(bench, task_id) == []
    check_all_ended(bench.store)


def test_of_a_run_that_is_revoked_nothing_is_written_and_it_is_told(bench: FlowBench) -> None:
    run = bench.running()
    held = (run.task_id, run.token)
    assert revoke(bench.rt, [run.task_id]).ended == {run.task_id}
    assert renew(bench.rt, "w1", [held]).lost == {held}
    assert cancelled(bench.rt, [held]) == {held}
    follow_up = new_task(project_id=run.project_id, inside=True)
    with pytest.raises(LeaseLost):
        complete(bench.rt, run, Outcome(TaskState.SUCCEEDED, continuations=(follow_up,)))
    with pytest.raises(LeaseLost):
        retry(bench.rt, run, new_task(id=run.task_id))
    assert (outcome(bench, run.task_id), bench.task(follow_up.id)) == (TaskState.CANCELLED, None)
    assert (attempts(bench, run.task_id), bench.task(run.task_id).attempts) == ([AttemptOutcome.CANCELLED], 1)
    check_all_ended(bench.store)


def test_a_task_that_waits_for_its_retry_is_cancelled(bench: FlowBench) -> None:
    run = bench.running()
    retry(bench.rt, run, new_task(id=run.task_id, delay_ms=5000))
    revoke(bench.rt, [run.task_id])
    bench.pass_time(10)
    assert dispatch(bench.rt).dispatched == ()
    assert outcome(bench, run.task_id) == TaskState.CANCELLED


def test_a_replaced_task_that_is_revoked_does_not_go_on_with_its_successor(bench: FlowBench) -> None:
    run = bench.running()
    between = new_task(project_id=run.project_id, inside=True)
    park(bench.rt, run, [between])
    revoke(bench.rt, [run.task_id])
    step = bench.claim("w1", between.id)
    assert step is not None
    last = new_task(id=run.task_id, project_id=run.project_id, inside=True, takes_over=True)
    complete(bench.rt, step, Outcome(TaskState.SUCCEEDED, continuations=(last,)))
    assert outcome(bench, run.task_id) == TaskState.CANCELLED
    check_all_ended(bench.store)


def test_an_id_that_is_not_known_yet_is_kept_and_met_at_the_claim(bench: FlowBench) -> None:
    later = new_task()
    assert revoke(bench.rt, [later.id]).kept == {later.id}
    enqueue(bench.rt, [later])
    delivery = Delivery(later.id, 1)
    assert claim(bench.rt, "w1", [delivery]) == [None]
    assert meet(bench.rt, [delivery]) == {later.id}
    assert outcome(bench, later.id) == TaskState.CANCELLED
    assert marks(bench, later.id) == set()
    check_all_ended(bench.store)


def test_a_later_element_of_a_chain_is_met_when_it_comes(bench: FlowBench) -> None:
    run = bench.running()
    element = new_task(project_id=run.project_id, inside=True)
    revoke(bench.rt, [element.id])
    complete(bench.rt, run, Outcome(TaskState.SUCCEEDED, continuations=(element,)))
    assert bench.claim("w1", element.id) is None
    meet(bench.rt, [Delivery(element.id, 1)])
    assert outcome(bench, element.id) == TaskState.CANCELLED


def test_a_mark_that_is_forgotten_stops_nothing(bench: FlowBench) -> None:
    later = new_task()
    revoke(bench.rt, [later.id])
    bench.store.transaction(lambda c: revoked.forget(c, [later.id]))
    enqueue(bench.rt, [later])
    assert bench.claim("w1", later.id) is not None


def test_a_task_that_is_put_back_runs_though_its_id_was_revoked_before_it_expired(bench: FlowBench) -> None:
    later = new_task(expires_in_ms=1000)
    revoke(bench.rt, [later.id])
    enqueue(bench.rt, [later])
    bench.pass_time(10)
    assert dispatch(bench.rt).ended == (later.id,)
    retry_failed(bench.rt, "default", Knowledge(lambda name: None, lambda message: ()))
    run = bench.claim("w1", later.id)
    assert run is not None
    complete(bench.rt, run, DONE)


def test_revoking_a_finished_task_or_twice_changes_nothing(bench: FlowBench) -> None:
    run, waiting = bench.running(), bench.enqueue()
    complete(bench.rt, run, DONE)
    revoke(bench.rt, [waiting])
    before = [bench.task(one) for one in (run.task_id, waiting)]
    done = revoke(bench.rt, [run.task_id, waiting])
    assert (done.known, done.ended, done.kept) == ({run.task_id, waiting}, set(), set())
    assert [bench.task(one) for one in (run.task_id, waiting)] == before


def test_many_ids_are_revoked_at_once_whatever_they_are(bench: FlowBench) -> None:
    waiting = [bench.enqueue() for _ in range(3)]
    run = bench.running()
    done = revoke(bench.rt, [*waiting, run.task_id, "unknown", "x" * 256, "nul\0", "", *waiting])
    assert (done.ended, done.kept) == ({*waiting, run.task_id}, {"unknown"})
    check_all_ended(bench.store)


def test_a_foreign_result_backend_is_owed_the_word_that_a_task_was_revoked(bench: FlowBench) -> None:
    object.__setattr__(bench.rt, "foreign_results", True)
    run, waiting = bench.running(), bench.enqueue()
    revoke(bench.rt, [run.task_id, waiting])
    assert [bench.task(one).undelivered for one in (run.task_id, waiting)] == [1, 1]


def test_a_lost_answer_to_a_revoke_is_repeated_without_harm(bench: FlowBench) -> None:
    run = bench.running()
    bench.store.lose_answers = 1
    with pytest.raises(Exception, match="the connection broke"):
        revoke(bench.rt, [run.task_id])
    assert revoke(bench.rt, [run.task_id]).known == {run.task_id}
    assert attempts(bench, run.task_id) == [AttemptOutcome.CANCELLED]


# --- races ------------------------------------------------------------------------------------------------------------


def test_a_revoke_waits_for_a_claim_under_way_and_ends_its_run(bench: FlowBench, other: FlowBench) -> None:
    task_id = bench.enqueue()
    delivery = Delivery(task_id, 1)
    meanwhile(
        bench.store,
        lambda c: leases.grant(bench.store, c, "w1", "mark", [delivery]),
        lambda: revoke(other.rt, [task_id]),
    )
    assert attempts(bench, task_id) == [AttemptOutcome.CANCELLED]
    check_all_ended(bench.store)


def test_a_task_recorded_and_claimed_while_its_mark_is_not_committed_is_ended_all_the_same(
    bench: FlowBench, other: FlowBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    if bench.store.dialect_name == "sqlite":
        pytest.skip("SQLite has one writer at a time: nothing is recorded meanwhile")
    later, put = new_task(), revoked.put
    open_project(bench.rt, "default")

    def put_and_be_slow(*args: Any) -> None:
        put(*args)
        if bench.task(later.id) is None:
            enqueue(other.rt, [later])
            assert other.claim("w1", later.id) is not None

    monkeypatch.setattr(revoked, "put", put_and_be_slow)
    revoke(bench.rt, [later.id])
    assert attempts(bench, later.id) == [AttemptOutcome.CANCELLED]
    assert marks(bench, later.id) == set()
    check_all_ended(bench.store)


@pytest.mark.parametrize("rival", ["complete", "retry", "dispatch", "lapse"])
def test_of_a_revoke_and_what_it_races_with_one_wins_and_the_other_knows(
    bench: FlowBench, other: FlowBench, rival: str
) -> None:
    for _ in range(10):
        run = bench.running()
        if rival in ("dispatch", "lapse"):
            bench.pass_time(10)
            other.store.clock_shift = bench.store.clock_shift
        barrier = threading.Barrier(2)
        refused: list[Exception] = []

        def race(run=run, barrier=barrier, refused=refused) -> None:  # type: ignore[no-untyped-def]
            barrier.wait()
            try:
                if rival == "complete":
                    complete(other.rt, run, DONE)
                elif rival == "retry":
                    retry(other.rt, run, new_task(id=run.task_id))
                else:
                    dispatch(other.rt)
            except LeaseLost as error:
                refused.append(error)

        racing = threading.Thread(target=race)
        racing.start()
        barrier.wait()
        done = revoke(bench.rt, [run.task_id])
        racing.join()
        if rival == "complete":
            assert (outcome(bench, run.task_id) == TaskState.SUCCEEDED) is (done.known == {run.task_id})
            assert bool(refused) is (done.ended == {run.task_id})
        else:
            assert outcome(bench, run.task_id) == TaskState.CANCELLED
    check_all_ended(bench.store)


# --- stamps -----------------------------------------------------------------------------------------------------------


def test_stamps_are_kept_once_and_bad_ones_are_refused(bench: FlowBench) -> None:
    for _ in range(2):
        revoke_stamps(bench.rt, {"customer": ['"a"', "17"], "batch": ['"x"'], "none": []})
    assert bench.store.statement(revoked.stamps) == [("batch", '"x"'), ("customer", '"a"'), ("customer", "17")]
    with pytest.raises(BadTask, match="a stamped header has 1 to 255 characters"):
        revoke_stamps(bench.rt, {"": ['"a"']})
    with pytest.raises(BadTask, match="stamped header customer has 1 to 255 characters"):
        revoke_stamps(bench.rt, {"customer": ["x" * 256]})
    assert revoke(bench.rt, ["customer"]).kept == {"customer"}
