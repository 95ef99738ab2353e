"""A revoke is recorded, and holds over every restart: of producers, workers and the broker."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from celery import Celery, chord
from celery.exceptions import ChordError, TaskRevokedError

from argus_celery import Argus
from argus_celery.errors import StoreUnavailable
from argus_celery.flow.revoke import revoke_stamps
from argus_celery.records import AttemptOutcome, TaskState
from tests.faults.ledger import wait_for
from tests.integration.workers import Bench, bench

pytestmark = pytest.mark.redis

POOLS = ["prefork", "threads", "solo", "gevent"]


def argus_of(workers: Bench) -> Argus:
    argus = Argus.of(workers.app)
    assert argus is not None
    return argus


def chained(workers: Bench, tag: str, seconds: float) -> str:
    """A run with a chain behind it; its id."""
    slow = workers.app.tasks["slow"]
    return str((slow.s(tag, seconds) | slow.si(f"{tag}-next", 0)).apply_async().parent.id)


def test_what_is_revoked_before_any_worker_is_there_never_runs(workers: Bench) -> None:
    queued, scheduled = workers.send("slow", "a", 0), workers.send("slow", "b", 0, countdown=1)
    for task_id in (queued, scheduled):
        workers.app.AsyncResult(task_id).revoke()
    with pytest.raises(TaskRevokedError):
        workers.app.AsyncResult(queued).get(timeout=5)
    workers.worker()
    workers.wait_ended(workers.send("slow", "after", 0, countdown=2), within=10)
    assert {line.tag for line in workers.ledger.lines("start")} == {"after"}


def test_the_revoke_of_a_scheduled_task_outlives_the_worker_that_heard_it(workers: Bench) -> None:
    first = workers.worker("w1")
    task_id = workers.send("slow", "b", 0, countdown=4)
    workers.app.control.revoke(task_id)
    first.kill()
    workers.worker("w2")
    workers.wait_ended(workers.send("slow", "after", 0, countdown=5), within=15)
    assert {line.tag for line in workers.ledger.lines("start")} == {"after"}
    assert workers.task(task_id).state is TaskState.CANCELLED


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("task", ["slow", "asleep"])
def test_a_run_that_is_revoked_is_told_within_a_renewal_and_its_chain_never_starts(
    workers: Bench, pool: str, task: str
) -> None:
    workers.worker(pool=pool, concurrency=1 if pool == "solo" else 2)
    body = workers.app.tasks[task]
    task_id = (body.s("r", 8) | body.si("next", 0)).apply_async().parent.id
    workers.wait("start", "r")
    workers.app.AsyncResult(task_id).revoke()
    assert workers.task(task_id).state is TaskState.CANCELLED
    # A call that blocks a thread is not cut short.
    workers.wait("told", "r", within=12 if (pool, task) == ("threads", "asleep") else 4)
    assert len(workers.wait("revoked", task_id, within=3)) == 1
    after = workers.send("slow", "after", 0)
    assert workers.wait_ended(after, within=5).state is TaskState.SUCCEEDED
    assert not workers.ledger.lines("start", "next") and len(workers.ledger.lines("revoked")) == 1
    assert not workers.ledger.lines("failure") and not workers.ledger.lines("success", task_id)
    assert [one.outcome for one in workers.attempts(task_id)] == [AttemptOutcome.CANCELLED]
    assert workers.task(task_id).state is TaskState.CANCELLED


@pytest.mark.parametrize("pool", POOLS)
def test_the_runs_of_a_cancelled_project_are_told_within_a_renewal(workers: Bench, pool: str) -> None:
    workers.worker(pool=pool)
    project = argus_of(workers).project("doomed")
    with project:
        task_id = chained(workers, "r", 20)
    workers.wait("start", "r")
    project.cancel()
    workers.wait("told", "r", within=4)
    ended = workers.wait_ended(task_id, within=3)
    assert (ended.state, ended.error, ended.losses) == (TaskState.CANCELLED, "the project was cancelled", 0)
    assert workers.wait_ended(workers.send("slow", "after", 0), within=5).state is TaskState.SUCCEEDED
    assert not workers.ledger.lines("start", "r-next")


@pytest.mark.parametrize("pool", ["prefork", "threads", "gevent"])
def test_a_run_is_told_by_the_broadcast_at_once(patient: Bench, pool: str) -> None:
    patient.worker(pool=pool, concurrency=2)
    task_id = patient.send("slow", "r", 8)
    patient.wait("start", "r")
    patient.app.control.revoke([task_id])
    patient.wait("told", "r", within=3)
    patient.wait("revoked", task_id, within=3)


@pytest.mark.parametrize("pool", ["prefork", "threads", "gevent"])
def test_what_is_taken_back_by_a_pause_or_a_cancel_is_told_at_once(patient: Bench, pool: str) -> None:
    """By remote control, long before a renewal. Solo hears of none while it runs a task."""
    patient.worker(pool=pool)
    project = argus_of(patient).project("steered")
    with project:
        task_id = patient.send("slow", "r", 30)
    patient.wait("start", "r")
    project.pause(running="stop")
    patient.wait("told", "r", within=15)
    project.resume()
    patient.wait("start", "r", count=2, within=60)
    project.cancel("a mistake")
    patient.wait("told", "r", count=2, within=15)
    ended = patient.wait_ended(task_id, within=15)
    assert (ended.state, ended.losses, ended.retries) == (TaskState.CANCELLED, 0, 0)
    outcomes = [AttemptOutcome.RELEASED, AttemptOutcome.CANCELLED]
    assert [one.outcome for one in patient.attempts(task_id)] == outcomes
    assert project.progress().reason == "a mistake"


def test_terminate_kills_the_child_and_the_next_task_has_another(patient: Bench) -> None:
    patient.worker()
    task_id = chained(patient, "r", 30)
    pid = patient.wait("start", "r")[0].pid
    patient.app.AsyncResult(task_id).revoke(terminate=True, signal="SIGKILL")
    after = patient.send("slow", "after", 0)
    assert patient.wait_ended(after, within=5).state is TaskState.SUCCEEDED
    assert patient.ledger.lines("start", "after")[0].pid != pid
    assert len(patient.wait("revoked", task_id)) == 1
    assert (patient.task(task_id).state, patient.task(task_id).losses) == (TaskState.CANCELLED, 0)
    assert not patient.ledger.lines("start", "r-next")


def test_what_a_worker_had_fetched_and_not_begun_is_dropped_and_said_once(patient: Bench) -> None:
    patient.worker()
    running, fetched = patient.send("slow", "long", 2), patient.send("slow", "fetched", 0)
    patient.wait("start", "long")
    patient.app.control.revoke(fetched)
    assert patient.wait_ended(running, within=6).state is TaskState.SUCCEEDED
    assert patient.wait_ended(patient.send("slow", "after", 0), within=5).state is TaskState.SUCCEEDED
    assert not patient.ledger.lines("start", "fetched")
    assert len(patient.wait("revoked", fetched)) == 1


def test_a_revoke_by_a_producer_without_argus_is_recorded_by_the_worker(patient: Bench) -> None:
    patient.worker()
    plain = Celery("bodies", broker=patient.setup.broker, set_as_current=False)
    running, scheduled = patient.send("slow", "r", 8), patient.send("slow", "s", 0, countdown=60)
    patient.wait("start", "r")
    plain.control.revoke([running, scheduled, "not-yet-known"])
    for task_id in (running, scheduled):
        assert patient.wait_ended(task_id, within=5).state is TaskState.CANCELLED
    patient.wait("told", "r", within=3)
    later = patient.send("slow", "later", 0, task_id="not-yet-known")
    assert patient.wait_ended(later, within=5).state is TaskState.CANCELLED
    assert len(patient.wait("revoked", later)) == 1


def test_the_command_line_records_a_revoke_also_when_no_worker_answers(workers: Bench) -> None:
    task_id = workers.send("slow", "a", 0)
    command = [sys.executable, "-m", "celery", "-A", "tests.integration.worker_bodies", "control", "revoke", task_id]
    subprocess.run(
        command, env={**os.environ, **workers.setup.environment()}, capture_output=True, timeout=60, check=False
    )
    assert workers.task(task_id).state is TaskState.CANCELLED


def test_a_revoke_is_recorded_though_the_broker_is_away(tmp_path: Path) -> None:
    with bench("redis://127.0.0.1:1", tmp_path) as one:
        task_id = one.send("slow", "a", 0)
        one.app.control.revoke(task_id)
        assert one.app.AsyncResult(task_id).revoke(wait=True, timeout=1) is None
        assert one.task(task_id).state is TaskState.CANCELLED


def test_a_revoke_while_the_store_is_away_says_so_and_is_broadcast_all_the_same(
    redis_broker: str, tmp_path: Path
) -> None:
    heard: list[str] = []

    def hear(_state: object, task_id: str, **_: object) -> None:
        heard.append(task_id)

    away = "postgresql+psycopg://root@127.0.0.1:1/away"
    with bench(redis_broker, tmp_path, store=away) as one, one.app.connection_for_read() as connection:
        probe = one.app.control.mailbox(connection).Node("probe@test", handlers={"revoke": hear})
        probe.listen(channel=connection.default_channel)

        def has_heard() -> bool:
            with suppress(OSError):
                connection.drain_events(timeout=0.5)
            return heard == ["an-ordinary-task"]

        assert not has_heard()  # and it has subscribed now
        with pytest.raises(StoreUnavailable):
            one.app.control.revoke("an-ordinary-task")
        wait_for(has_heard, 5, "the broadcast")


def test_what_failed_is_put_back_and_runs_though_it_was_revoked_in_between(patient: Bench) -> None:
    """What Celery keeps in memory of ids is nothing that a durable task is judged by."""
    patient.worker()
    task_id = patient.send("at_first_failing", "f")
    assert patient.wait_ended(task_id, within=5).state is TaskState.FAILED
    patient.app.AsyncResult(task_id).revoke(wait=True, timeout=5)
    assert patient.task(task_id).state is TaskState.FAILED
    argus_of(patient).project("default").retry(task_id)
    assert patient.wait_ended(task_id, within=5).state is TaskState.SUCCEEDED


def test_a_group_is_revoked_and_the_chord_over_it_fails(patient: Bench) -> None:
    slow, errback = patient.app.tasks["slow"], patient.app.tasks["errback"]
    patient.worker(concurrency=2)
    body = slow.si("body", 0).set(link_error=errback.s())
    result = chord([slow.s("r", 20), slow.s("q", 20), slow.s("waits", 0)], body).apply_async()
    patient.wait("start", count=2)
    result.parent.revoke()
    assert {patient.wait_ended(one.id, within=4).state for one in result.parent.results} == {TaskState.CANCELLED}
    with pytest.raises(ChordError):
        result.get(timeout=10, follow_parents=False)
    assert not patient.ledger.lines("start", "body")
    assert len(patient.ledger.lines("start")) == 2


@pytest.mark.parametrize("task", ["slow", "chatty"])
def test_the_users_own_result_backend_is_told_and_keeps_the_last_word(
    redis_broker: str, tmp_path: Path, task: str
) -> None:
    conf = {"result_backend": redis_broker, "task_track_started": True}
    with bench(redis_broker, tmp_path, settings={"lease_ttl": 3}, conf=conf) as workers:
        waiting = workers.send(task, "w", 0)
        workers.app.AsyncResult(waiting).revoke()
        workers.worker()
        running = workers.send(task, "r", 20)
        workers.wait("start", "r")
        workers.app.AsyncResult(running).revoke()
        for task_id in (waiting, running):
            with pytest.raises(TaskRevokedError):
                workers.app.AsyncResult(task_id).get(timeout=8)
        after = workers.send("slow", "after", 0)
        assert workers.app.AsyncResult(after).get(timeout=8) == "after"
        wait_for(lambda: workers.app.AsyncResult(running).state == "REVOKED", 3, "the last word")
        assert not workers.ledger.lines("end", "r")


def test_the_event_of_a_revoke_comes_once_and_says_nothing_of_a_failure(patient: Bench) -> None:
    events: list[dict[str, object]] = []
    patient.worker(conf={"worker_send_task_events": True})
    with patient.app.connection_for_read() as connection:
        receiver = patient.app.events.Receiver(connection, handlers={"*": events.append})
        with receiver.consumer_context(wakeup=False) as (opened, *_):
            running, waiting = patient.send("slow", "r", 20), patient.send("slow", "w", 0)
            patient.wait("start", "r")
            patient.app.control.revoke([running, waiting])
            after = patient.send("slow", "after", 0)

            def seen() -> bool:
                with suppress(OSError):
                    opened.drain_events(timeout=0.5)
                return any(one["type"] == "task-succeeded" and one["uuid"] == after for one in events)

            wait_for(seen, 10, "the events")
    told = [(one["type"], one["uuid"]) for one in events if one.get("uuid") in (running, waiting)]
    assert told.count(("task-revoked", running)) == told.count(("task-revoked", waiting)) == 1
    assert not {kind for kind, _ in told} & {"task-failed", "task-succeeded", "task-retried"}


# --- stamps -----------------------------------------------------------------------------------------------------------


def stamped(workers: Bench, tag: str, seconds: float, customer: object, **options: object) -> str:
    task = workers.app.tasks["slow"].s(tag, seconds)
    task.stamp(customer=customer)
    return str(task.apply_async(**options).id)


def test_revoked_stamps_outlive_the_workers_that_heard_of_them(workers: Bench) -> None:
    workers.app.control.revoke_by_stamped_headers({"customer": ["a", 17]})
    ids = [stamped(workers, f"s{number}", 0, customer) for number, customer in enumerate(("a", 17, ["x", "a"]))]
    other = stamped(workers, "other", 0, "17")
    workers.worker()
    assert {workers.wait_ended(one, within=5).state for one in ids} == {TaskState.CANCELLED}
    assert workers.wait_ended(other, within=5).state is TaskState.SUCCEEDED
    assert {line.tag for line in workers.ledger.lines("start")} == {"other"}
    assert all(len(workers.wait("revoked", one)) == 1 for one in ids)


@pytest.mark.parametrize("terminate", [False, True])
def test_a_run_with_a_revoked_stamp_is_told_by_the_broadcast(patient: Bench, terminate: bool) -> None:
    patient.worker()
    task_id = stamped(patient, "s", 30, "a")
    patient.wait("start", "s")
    patient.app.AsyncResult(task_id).revoke_by_stamped_headers({"customer": "a"}, terminate=terminate)
    assert patient.wait_ended(task_id, within=4).state is TaskState.CANCELLED
    assert len(patient.wait("revoked", task_id)) == 1
    assert patient.wait_ended(patient.send("slow", "after", 0), within=5).state is TaskState.SUCCEEDED
    assert not patient.ledger.lines("end", "s")


def test_a_worker_that_did_not_hear_of_a_stamp_learns_it_from_the_store(patient: Bench) -> None:
    patient.worker()
    task_id = stamped(patient, "s", 30, "a")
    patient.wait("start", "s")
    revoke_stamps(argus_of(patient).runtime, {"customer": ['"a"']})
    patient.wait("told", "s", within=6)
    assert patient.task(task_id).state is TaskState.CANCELLED


def test_the_command_line_revokes_stamps(workers: Bench) -> None:
    call = ["-A", "tests.integration.worker_bodies", "control", "revoke_by_stamped_headers", "customer=a"]
    command = [sys.executable, "-m", "celery", *call]
    subprocess.run(command, env={**os.environ, **workers.setup.environment()}, timeout=60, check=False)
    task_id = stamped(workers, "s", 0, "a")
    workers.worker()
    assert workers.wait_ended(task_id, within=5).state is TaskState.CANCELLED
