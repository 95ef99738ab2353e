"""What every pool has to do, and where a pool cannot, what it does instead (docs/pools.md)."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import chain, chord, group

from argus_celery.records import AttemptOutcome, TaskState
from argus_celery.store import setup
from tests.faults.ledger import wait_for
from tests.integration.workers import Bench, bench

pytestmark = pytest.mark.redis

EVENTLET = pytest.param(
    "eventlet", marks=pytest.mark.skipif(not importlib.util.find_spec("eventlet"), reason="no eventlet")
)
POOLS = ["prefork", "spawn", "threads", "solo", "gevent", EVENTLET]
WITH_CHILDREN = ("prefork", "spawn")
GREEN = ("gevent", "eventlet")


# --- what Celery promises ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("pool", POOLS)
def test_runs_retries_and_canvases_end_with_their_results(patient: Bench, pool: str) -> None:
    patient.worker(pool=pool)
    add, total = patient.app.tasks["add"], patient.app.tasks["total"]
    results = {
        "run": (add.delay(1, 2), 3),
        "retry": (patient.app.tasks["again"].delay("r"), 2),
        "link": (add.apply_async((1, 2), link=add.s(4)), 3),
        "chain": (chain(add.s(1, 2), add.s(4))(), 7),
        "group": (group(add.s(number, 1) for number in range(3)).delay(), [1, 2, 3]),
        "chord": (chord([add.s(number, 1) for number in range(3)], total.s())(), 6),
    }
    assert {name: result.get(timeout=20) for name, (result, _) in results.items()} == {
        name: expected for name, (_, expected) in results.items()
    }
    assert [line.attempt for line in patient.ledger.lines("start", "r")] == [1, 2, 3]


@pytest.mark.parametrize("pool", POOLS)
def test_a_failure_is_told_once_and_ends_its_chain(patient: Bench, pool: str) -> None:
    patient.worker(pool=pool)
    failing, never = patient.app.tasks["failing"], patient.app.tasks["slow"]
    task_id = patient.send("failing", "f", link_error=patient.app.tasks["errback"].s())
    chained = chain(failing.si("c"), never.si("never", 0))()
    with pytest.raises(ValueError, match="c"):
        chained.parent.get(timeout=20)
    assert patient.wait_ended(task_id, within=5).state is TaskState.FAILED
    patient.wait("errback", task_id)
    assert [line.detail for line in patient.ledger.lines("failure", task_id)] == ["ValueError"]
    assert not patient.ledger.lines("start", "never")


@pytest.mark.parametrize("pool", POOLS)
def test_a_hard_time_limit_is_one_failure_where_the_pool_has_it(patient: Bench, pool: str) -> None:
    patient.worker(pool=pool)
    limited = pool in (*WITH_CHILDREN, "gevent")
    task_id = patient.send("limited", "x", 60 if limited else 4, link_error=patient.app.tasks["errback"].s())
    ended = patient.wait_ended(task_id, within=12)
    after = patient.send("slow", "after", 0)
    assert patient.wait_ended(after, within=10).state is TaskState.SUCCEEDED
    if not limited:
        assert ended.state is TaskState.SUCCEEDED
        return
    assert ended.state is TaskState.FAILED
    assert "TimeLimitExceeded" in (ended.error or "")
    patient.wait("errback", task_id)
    assert [line.detail for line in patient.ledger.lines("failure", task_id)] == ["TimeLimitExceeded"]
    assert len(patient.ledger.lines("start", "x")) == len(patient.ledger.lines("errback")) == 1


@pytest.mark.parametrize("pool", POOLS)
def test_a_soft_time_limit_is_raised_where_the_pool_has_it(patient: Bench, pool: str) -> None:
    patient.worker(pool=pool)
    task_id = patient.send("soft_limited", "x", 60 if pool in WITH_CHILDREN else 4)
    assert patient.wait_ended(task_id, within=12).state is TaskState.SUCCEEDED
    assert len(patient.ledger.lines("soft", "x")) == (pool in WITH_CHILDREN)


@pytest.mark.parametrize("pool", POOLS)
def test_a_revoked_run_is_cancelled_and_told(patient: Bench, pool: str) -> None:
    patient.worker(pool=pool, concurrency=1 if pool == "solo" else 2)
    task_id = patient.send("slow", "r", 6)
    patient.wait("start", "r")
    patient.app.control.revoke(task_id, terminate=True)
    assert patient.wait_ended(task_id, within=4).state is TaskState.CANCELLED
    if pool == "solo":  # its one thread runs the body: it is told by the renewal, which is far away here
        return
    if pool not in WITH_CHILDREN:  # whose child is ended
        patient.wait("told", "r", within=4)
    after = patient.send("slow", "after", 0)
    assert patient.wait_ended(after, within=5).state is TaskState.SUCCEEDED
    assert not patient.ledger.lines("end", "r")


# --- the lease --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("pool", POOLS)
def test_a_run_far_beyond_the_ttl_is_renewed_and_runs_once(workers: Bench, pool: str) -> None:
    workers.worker("w1", pool=pool)
    workers.worker("w2", pool=pool)
    task_id = workers.send("slow", "long", 8)
    ended = workers.wait_ended(task_id, within=20)
    assert (ended.state, ended.attempts, ended.losses) == (TaskState.SUCCEEDED, 1, 0)
    assert len(workers.ledger.lines("start", "long")) == 1


@pytest.mark.parametrize("pool", POOLS)
def test_a_body_that_computes_beyond_the_ttl_keeps_its_lease_unless_it_stalls_the_renewal(
    workers: Bench, pool: str
) -> None:
    workers.worker("w1", pool=pool)
    task_id = workers.send("busy", "b", 10)
    first = workers.wait("start", "b")[0]
    workers.worker("w2", pool=pool)
    ended = workers.wait_ended(task_id, within=30)
    assert ended.state is TaskState.SUCCEEDED
    starts = workers.ledger.lines("start", "b")
    if pool not in GREEN:
        assert [line.token for line in starts] == [first.token]
        return
    assert [line.attempt for line in starts] == [1, 2]
    assert (ended.token, ended.losses) == (starts[1].token, 1)


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("task", ["slow", "asleep"])
def test_a_frozen_worker_is_told_that_its_lease_went_to_another(workers: Bench, pool: str, task: str) -> None:
    frozen = workers.worker("frozen", pool=pool)
    task_id = workers.send(task, "z", 15)
    first = workers.wait("start", "z")[0]
    frozen.freeze()
    other = workers.worker("other", pool=pool)
    second = workers.wait("start", "z", count=2, within=12)[1]
    assert second.token > first.token
    frozen.thaw()
    if not (pool == "threads" and task == "asleep"):  # a call that blocks a thread is not cut short
        assert workers.wait("told", "z", within=5)[0].token == first.token
        # The other worker may fetch one of these behind its long run; the told one takes what comes to it.
        after = [workers.send("slow", f"after-{number}", 0) for number in range(8)]
        wait_for(lambda: any(workers.task(one).state is TaskState.SUCCEEDED for one in after), 5, "it takes new work")
    ended = workers.wait_ended(task_id, within=40)
    assert ended.state is TaskState.SUCCEEDED
    assert [line.token for line in workers.ledger.lines("end", "z")][:1] == [second.token]
    assert frozen.running and other.running


@pytest.mark.parametrize("pool", POOLS)
def test_a_run_that_shows_no_progress_is_told_and_runs_again(workers: Bench, pool: str) -> None:
    workers.worker(pool=pool)
    task_id = workers.send("stuck", "s")
    first = workers.wait("start", "s")[0]
    again = workers.wait("start", "s", count=2, within=3 + 6 + 3)[1]  # the timeout, the TTL and a sweep
    assert workers.wait("told", "s")[0].token == first.token < again.token
    ended = workers.wait_ended(task_id, within=5)
    assert (ended.state, ended.attempts, ended.losses) == (TaskState.SUCCEEDED, 2, 1)
    lost = workers.attempts(task_id)[0]
    assert (lost.outcome, lost.detail) == (AttemptOutcome.LOST, "no progress for 3 s: the lease lapsed")


@pytest.mark.parametrize("pool", POOLS)
def test_a_run_that_says_that_it_goes_on_keeps_its_lease_far_beyond_the_timeout(workers: Bench, pool: str) -> None:
    workers.worker("w1", pool=pool)
    workers.worker("w2", pool=pool)
    ended = workers.wait_ended(workers.send("steady", "s", 8), within=20)
    assert (ended.state, ended.attempts, ended.losses) == (TaskState.SUCCEEDED, 1, 0)


@pytest.mark.parametrize("pool", WITH_CHILDREN)
def test_a_run_without_progress_that_cannot_be_told_is_killed_with_its_child(workers: Bench, pool: str) -> None:
    node = workers.worker(pool=pool)
    task_id = workers.send("deaf", "d")
    first = workers.wait("start", "d")[0]
    again = workers.wait("start", "d", count=2, within=12)[1]
    assert again.pid != first.pid
    ended = workers.wait_ended(task_id, within=5)
    assert (ended.state, ended.attempts, ended.losses) == (TaskState.SUCCEEDED, 2, 1)
    assert (workers.attempts(task_id)[0].detail or "").startswith("no progress for 3 s: ")
    assert node.running


# --- the worker stops or dies -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("pool", POOLS)
def test_a_warm_shutdown_lets_the_run_end_and_renews_it_until_then(workers: Bench, pool: str) -> None:
    node = workers.worker("w1", pool=pool)
    task_id = workers.send("slow", "w", 6)
    workers.wait("start", "w")
    node.terminate()
    workers.worker("w2", pool=pool)
    ended = workers.wait_ended(task_id, within=15)
    assert (ended.state, ended.attempts) == (TaskState.SUCCEEDED, 1)
    node.wait_exit(5)


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("task", ["slow", "asleep"])
def test_a_cold_shutdown_hands_over_without_a_loss(patient: Bench, pool: str, task: str) -> None:
    node = patient.worker("w1", pool=pool)
    seconds = 8 if (pool, task) == ("threads", "asleep") else 30
    task_id = patient.send(task, "c", seconds)
    patient.wait("start", "c")
    node.quit()
    node.wait_exit(12 if seconds == 8 else 8)
    ended = wait_for(lambda: patient.attempts(task_id), 2, "the attempt is noted")
    if seconds == 8:
        assert ended[0].outcome in (AttemptOutcome.SUCCEEDED, AttemptOutcome.RELEASED)
        return
    assert [one.outcome for one in ended] == [AttemptOutcome.RELEASED]
    assert patient.task(task_id).losses == 0
    patient.worker("w2", pool=pool)
    patient.wait("start", "c", count=2, within=5)


@pytest.mark.parametrize("pool", POOLS)
def test_a_killed_worker_is_taken_over_at_once(patient: Bench, pool: str) -> None:
    node = patient.worker("w1", pool=pool)
    task_id = patient.send("slow", "k", 2)
    first = patient.wait("start", "k")[0]
    node.kill()
    ready_at = patient.worker("w2", pool=pool).wait_ready()
    second = patient.wait("start", "k", count=2, within=5)[1]
    assert second.time - ready_at < (5 if pool == "spawn" else 1)  # whose children are still starting
    assert second.token > first.token
    ended = patient.wait_ended(task_id, within=10)
    assert (ended.state, ended.losses) == (TaskState.SUCCEEDED, 1)


@pytest.mark.parametrize("pool", WITH_CHILDREN)
def test_a_killed_child_of_a_busy_pool_costs_no_other_run(patient: Bench, pool: str) -> None:
    node = patient.worker(pool=pool, concurrency=3)
    ids = [patient.send("slow", f"b{n}", 6) for n in range(3)]
    victim = patient.wait("start", "b1", within=20)[0]
    patient.wait("start", count=3)
    node.kill_child(victim.pid)
    ended = [patient.wait_ended(one, within=20) for one in ids]
    assert [one.losses for one in ended] == [0, 1, 0]
    assert len(patient.ledger.lines("start")) == 4


@pytest.mark.parametrize("pool", POOLS)
def test_a_body_that_exits_or_runs_out_of_memory_costs_the_worker_nothing(patient: Bench, pool: str) -> None:
    node = patient.worker(pool=pool)
    greedy, leaver = patient.send("greedy", "g"), patient.send("leaver", "l")
    assert patient.wait_ended(greedy, within=8).state is TaskState.FAILED
    ended = patient.wait_ended(leaver, within=8)
    assert (ended.state, ended.losses) == (TaskState.SUCCEEDED, 1)
    after = patient.send("slow", "after", 0)
    assert patient.wait_ended(after, within=5).state is TaskState.SUCCEEDED
    assert node.running


# --- the store's driver -----------------------------------------------------------------------------------------------
@pytest.fixture
def on_postgres(redis_broker: str, postgres_store_url: str, tmp_path: Path) -> Iterator[Bench]:
    with bench(redis_broker, tmp_path, store=postgres_store_url) as one:
        setup.init(one.store)
        yield one


@pytest.mark.postgres
@pytest.mark.parametrize("pool", [EVENTLET])
def test_a_driver_that_would_block_every_greenlet_is_refused_at_start(on_postgres: Bench, pool: str) -> None:
    node = on_postgres.launch("w1", pool=pool)
    node.may_exit = True
    node.wait_exit(30)
    assert "psycopg waits in C" in node.tail()


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("pool", "variable"),
    [("gevent", None), pytest.param("eventlet", "PSYCOPG_WAIT_FUNC=wait_select", marks=EVENTLET.marks)],
)
def test_greenlets_work_on_postgres_with_a_driver_that_lets_them(
    on_postgres: Bench, pool: str, variable: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable:
        monkeypatch.setenv(*variable.split("="))
    on_postgres.worker(pool=pool, concurrency=4)
    ids = [on_postgres.send("slow", f"p{number}", 1) for number in range(4)]
    assert {on_postgres.wait_ended(one, within=10).state for one in ids} == {TaskState.SUCCEEDED}
    starts = on_postgres.ledger.lines("start")
    assert max(line.time for line in starts) - min(line.time for line in starts) < 1
