"""Retry: what failed, died or expired is put back, above its fence; what it led to comes back with it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy.engine import Connection

from argus_celery.errors import LeaseLost, NotRetriable, ProjectClosed, TaskNotFound
from argus_celery.flow import deliver
from argus_celery.flow.claim import adopt
from argus_celery.flow.complete import complete
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.enqueue import enqueue
from argus_celery.flow.keep import keep
from argus_celery.flow.lapse import lapse
from argus_celery.flow.restore import sweep
from argus_celery.flow.revive import Knowledge, retry, retry_failed
from argus_celery.flow.steer import cancel, close, pause, resume
from argus_celery.records import AttemptOutcome, Claim, NewTask, Outcome, ProjectStatus, TaskState
from argus_celery.store import leases, projects, reports, tasks
from argus_celery.store.tasks import Ending
from tests.flow.conftest import FlowBench
from tests.flow.faults import meanwhile
from tests.invariants import check_all_ended
from tests.store.bench import new_task

FAILED = Outcome(TaskState.FAILED, error="broke")


as_usual = Knowledge(lambda name: None, lambda message: ())


def put_back(bench: FlowBench) -> list[str]:
    bench.history.check()
    ids = retry_failed(bench.rt, "default", as_usual)
    bench.history.revived.update(ids)
    return ids


def finish(bench: FlowBench, task_id: str, *follow: NewTask) -> Claim:
    claim = bench.claim("w2", task_id)
    assert claim is not None
    complete(bench.rt, claim, Outcome(TaskState.SUCCEEDED, b"done", continuations=follow))
    return claim


def state(bench: FlowBench, task_id: str) -> TaskState:
    info = reports.task_info(bench.store, task_id)
    assert info is not None
    return info.state


def status(bench: FlowBench) -> ProjectStatus:
    info = reports.project_info(bench.store, "default")
    assert info is not None
    return info.status


def failing(bench: FlowBench) -> Claim:
    claim = bench.running()
    complete(bench.rt, claim, FAILED)
    return claim


def dead(bench: FlowBench) -> Claim:
    claim = bench.running(max_losses=1)
    assert lapse(bench.rt, "w1", claim.task_id, claim.token, "signal 9") is TaskState.DEAD
    return claim


@pytest.mark.parametrize("end", [failing, dead])
def test_what_ended_badly_runs_again_above_its_fence(bench: FlowBench, end: Callable[[FlowBench], Claim]) -> None:
    before = end(bench)
    finished = bench.running()
    complete(bench.rt, finished, Outcome(TaskState.SUCCEEDED))
    assert put_back(bench) == [before.task_id]
    assert deliver.pending(bench.rt) == [], "what the failure owed is not owed any more"
    after = finish(bench, before.task_id)
    assert after.token > before.token + 1
    row = bench.task(before.task_id)
    assert (row.outcome, row.error, row.attempts, row.losses) == ("succeeded", None, 2, 0)
    with pytest.raises(LeaseLost):
        complete(bench.rt, before, FAILED)
    check_all_ended(bench.store, bench.history.revived)


def test_the_stored_message_is_replayed_and_the_attempts_are_kept(bench: FlowBench) -> None:
    claim = failing(bench)
    first = bench.sent[-1]
    put_back(bench)
    assert bench.sent[-1].message == first.message
    runs = reports.attempt_rows(bench.store, claim.task_id)
    assert [run.outcome for run in runs] == [AttemptOutcome.FAILED]


def test_what_expired_runs_in_the_end_without_its_expiry(bench: FlowBench) -> None:
    task_id = bench.enqueue(delay_ms=2_000, expires_in_ms=1_000)
    bench.pass_time(3)
    assert dispatch(bench.rt).ended == (task_id,)
    assert put_back(bench) == [task_id]
    bench.pass_time(3.1)
    dispatch(bench.rt)
    finish(bench, task_id)


def test_a_second_retry_finds_nothing(bench: FlowBench) -> None:
    claim = failing(bench)
    put_back(bench)
    sent = len(bench.sent)
    assert put_back(bench) == []
    assert not retry(bench.rt, "default", claim.task_id, as_usual)
    assert len(bench.sent) == sent


def test_of_two_who_put_back_at_once_each_task_goes_to_one(bench: FlowBench, other: FlowBench) -> None:
    failed = {failing(bench).task_id for _ in range(20)}
    bench.history.revived |= failed
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda b: retry_failed(b.rt, "default", as_usual), (bench, other))
    assert sorted(first + second) == sorted(failed)
    for task_id in failed:
        finish(bench, task_id)
    check_all_ended(bench.store, failed)


def test_a_dead_letter_has_all_its_losses_again(bench: FlowBench) -> None:
    claim = bench.running(max_losses=2)
    for _ in range(2):
        lapse(bench.rt, "w1", claim.task_id, claim.token, "signal 9")
        if bench.lease(claim.task_id) is not None:
            again = bench.claim("w1", claim.task_id)
            assert again is not None
            claim = again
    assert state(bench, claim.task_id) is TaskState.DEAD
    put_back(bench)
    once_more = bench.claim("w1", claim.task_id)
    assert once_more is not None
    assert lapse(bench.rt, "w1", once_more.task_id, once_more.token, "signal 9") is TaskState.QUEUED
    finish(bench, claim.task_id)


def test_one_task_is_put_back_with_its_own_ttl_and_the_others_stay(bench: FlowBench) -> None:
    one, other = failing(bench), failing(bench)
    bench.history.check()
    bench.history.revived.add(one.task_id)
    assert retry(bench.rt, "default", one.task_id, Knowledge({"shop.charge": 120_000}.get, lambda message: ()))
    assert bench.lease(one.task_id).ttl == 120_000
    assert state(bench, other.task_id) is TaskState.FAILED


def test_what_has_not_failed_is_refused_by_name(bench: FlowBench) -> None:
    claim = bench.running()
    assert not retry(bench.rt, "default", claim.task_id, as_usual)
    complete(bench.rt, claim, Outcome(TaskState.SUCCEEDED))
    with pytest.raises(NotRetriable, match=r"shop\.charge.*has succeeded"):
        retry(bench.rt, "default", claim.task_id, as_usual)
    with pytest.raises(TaskNotFound, match="no task 'nonesuch'"):
        retry(bench.rt, "default", "nonesuch", as_usual)
    elsewhere = bench.running(project="elsewhere")
    complete(bench.rt, elsewhere, FAILED)
    with pytest.raises(TaskNotFound):
        retry(bench.rt, "default", elsewhere.task_id, as_usual)


def test_an_ended_project_is_closed_again_and_ends_once_more(bench: FlowBench) -> None:
    claim = failing(bench)
    close(bench.rt, "default")
    assert status(bench) is ProjectStatus.FAILED
    assert put_back(bench) == [claim.task_id]
    assert status(bench) is ProjectStatus.CLOSED
    with pytest.raises(ProjectClosed):
        bench.enqueue()
    finish(bench, claim.task_id)
    sweep(bench.rt)
    assert status(bench) is ProjectStatus.COMPLETED


def test_an_ended_project_without_failures_stays_ended(bench: FlowBench) -> None:
    finish(bench, bench.enqueue())
    close(bench.rt, "default")
    assert put_back(bench) == []
    assert status(bench) is ProjectStatus.COMPLETED


def test_an_open_project_stays_open_and_a_cancelled_one_is_refused(bench: FlowBench) -> None:
    claim = failing(bench)
    put_back(bench)
    assert status(bench) is ProjectStatus.OPEN
    cancel(bench.rt, "default")
    for call in (lambda: retry_failed(bench.rt, "default", as_usual), lambda: retry_one(bench, claim.task_id)):
        with pytest.raises(ProjectClosed, match="was cancelled"):
            call()


def retry_one(bench: FlowBench, task_id: str) -> bool:
    return retry(bench.rt, "default", task_id, as_usual)


def test_what_is_put_back_into_a_paused_project_waits_for_its_resume(bench: FlowBench) -> None:
    claim = failing(bench)
    pause(bench.rt, "default")
    sent = len(bench.sent)
    assert put_back(bench) == [claim.task_id]
    bench.pass_time(100)
    dispatch(bench.rt)
    assert len(bench.sent) == sent
    resume(bench.rt, "default")
    dispatch(bench.rt)
    finish(bench, claim.task_id)


def test_more_than_one_batch_is_put_back_and_goes_out_as_the_window_allows(bench: FlowBench) -> None:
    many_failed(bench, 1_200)
    sent = len(bench.sent)
    ids = retry_failed(bench.rt, "default", as_usual)
    bench.history.revived.update(ids)
    assert len(ids) == 1_200
    assert len(bench.sent) - sent == 500
    assert len(dispatch(bench.rt).dispatched) == 500
    assert not dispatch(bench.rt).dispatched, "the window is full"


def many_failed(bench: FlowBench, count: int) -> None:
    new = [new_task() for _ in range(count)]
    enqueue(bench.rt, new)

    def end(connection: Connection) -> None:
        leases.delete_all(connection, [task.id for task in new])
        tasks.end(bench.store, connection, [Ending(task.id, 1, TaskState.FAILED, "broke") for task in new])

    bench.store.transaction(end)


# --- what a failed task led to ------------------------------------------------------------------------------------


def rest_of_the_chain(bench: FlowBench, claim: Claim) -> NewTask:
    """The next task of a chain, whose failure was kept under its id when the one before it failed."""
    follower = new_task("shop.follow", project_id=claim.project_id, inside=True)
    keep(bench.rt, follower.id, "shop.follow", TaskState.FAILED, b"broke", abandoned=True)
    bench.history.revived.add(follower.id)
    return follower


def test_the_rest_of_a_chain_runs_when_the_task_before_it_succeeds_in_the_end(bench: FlowBench) -> None:
    claim = failing(bench)
    follower = rest_of_the_chain(bench, claim)
    put_back(bench)
    finish(bench, claim.task_id, follower)
    assert state(bench, follower.id) is TaskState.QUEUED
    finish(bench, follower.id)
    row = bench.task(follower.id)
    assert (row.name, row.project_id, row.result) == ("shop.follow", claim.project_id, b"done")
    assert bench.task(follower.id).attempts == 1
    check_all_ended(bench.store, bench.history.revived)


def test_a_late_word_of_the_first_failure_does_not_undo_what_runs_again(bench: FlowBench) -> None:
    claim = failing(bench)
    follower = rest_of_the_chain(bench, claim)
    put_back(bench)
    finish(bench, claim.task_id, follower)
    keep(bench.rt, follower.id, "shop.follow", TaskState.FAILED, b"broke", abandoned=True)
    assert state(bench, follower.id) is TaskState.QUEUED


def test_what_is_revived_in_a_paused_project_waits(bench: FlowBench) -> None:
    claim = failing(bench)
    follower = rest_of_the_chain(bench, claim)
    put_back(bench)
    last = bench.claim("w2", claim.task_id)
    assert last is not None
    pause(bench.rt, "default")
    complete(bench.rt, last, Outcome(TaskState.SUCCEEDED, continuations=(follower,)))
    assert state(bench, follower.id) is TaskState.WAITING
    resume(bench.rt, "default")
    dispatch(bench.rt)
    finish(bench, follower.id)


def test_two_who_lead_to_one_abandoned_task_revive_it_once(bench: FlowBench, other: FlowBench) -> None:
    first, second = bench.running(), bench.running()
    follower = rest_of_the_chain(bench, first)
    outcome = Outcome(TaskState.SUCCEEDED, continuations=(follower,))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda one: complete(one[0].rt, one[1], outcome), ((bench, first), (other, second))))
    assert [one.task_id for one in bench.sent].count(follower.id) == 1
    finish(bench, follower.id)


def test_the_late_loser_of_that_race_does_not_raise_what_has_ended_since(bench: FlowBench, other: FlowBench) -> None:
    first, second = bench.running(), bench.running()
    follower = rest_of_the_chain(bench, first)
    finish_of(bench, first, follower)
    finish(bench, follower.id)
    finish_of(other, second, follower)
    assert state(bench, follower.id) is TaskState.SUCCEEDED


def finish_of(bench: FlowBench, claim: Claim, follower: NewTask) -> None:
    complete(bench.rt, claim, Outcome(TaskState.SUCCEEDED, continuations=(follower,)))


def test_a_stray_message_without_a_token_revives_nothing(bench: FlowBench) -> None:
    claim = failing(bench)
    follower = rest_of_the_chain(bench, claim)
    assert adopt(bench.rt, follower) == 0
    assert state(bench, follower.id) is TaskState.FAILED


def test_a_kept_result_has_nothing_to_repeat(bench: FlowBench) -> None:
    claim = failing(bench)
    follower = rest_of_the_chain(bench, claim)
    assert retry_failed(bench.rt, "argus.results", as_usual) == []
    with pytest.raises(NotRetriable, match="retry that one"):
        retry(bench.rt, "argus.results", follower.id, as_usual)


def test_a_retry_waits_for_the_completion_of_the_project_and_opens_it_again(bench: FlowBench) -> None:
    claim = failing(bench)
    bench.history.revived.add(claim.task_id)

    def completing(connection: object) -> None:
        project = projects.exclusive(bench.store, connection, claim.project_id)  # type: ignore[arg-type]
        assert project is not None
        projects.finish(bench.store, connection, project.id, ProjectStatus.FAILED)  # type: ignore[arg-type]

    assert meanwhile(bench.store, completing, lambda: put_back_blindly(bench)) == [claim.task_id]
    assert status(bench) is ProjectStatus.CLOSED


def put_back_blindly(bench: FlowBench) -> list[str]:
    return retry_failed(bench.rt, "default", as_usual)
