"""A delivery is claimed before anything of a run is seen, and a run ends once, under its claim."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis
import sqlalchemy as sa
from celery import signals
from celery.exceptions import Ignore, Reject

from argus_celery import current, durable, errors
from argus_celery.hooks import renewing
from argus_celery.hooks.renewing import Renewing
from argus_celery.records import TaskState
from argus_celery.signals import lease_renewed
from argus_celery.store import reports
from argus_celery.store.schema import leases
from tests.integration.embedded import Shop, shop, until

pytestmark = pytest.mark.redis


@pytest.fixture(params=["argus://", "redis"])
def bench(sqlite_store_url: str, redis_broker: str, request: pytest.FixtureRequest) -> Shop:
    backend = redis_broker if request.param == "redis" else request.param
    made = shop(sqlite_store_url, redis_broker, backend, max_payload=10_000)
    _tasks(made)
    return made


def _tasks(made: Shop) -> None:
    app, log = made.app, made.log
    made.gate = threading.Event()  # type: ignore[attr-defined]

    @durable
    @app.task(shared=False, name="shop.who", bind=True)
    def who(self: Any) -> list[Any]:
        log.append("who")
        return [current.task_id == self.request.id, current.token, current.attempt, current.project, current.key]

    @durable
    @app.task(shared=False, name="shop.slow")
    def slow() -> str:
        log.append("start")
        assert made.gate.wait(20)  # type: ignore[attr-defined]
        log.append("end")
        return "slow"

    @durable
    @app.task(shared=False, name="shop.after")
    def after(*args: Any) -> None:
        log.append("after")

    @durable
    @app.task(shared=False, name="shop.say")
    def say(what: str) -> Any:
        log.append(what)
        if what == "large":
            return "x" * 20_000
        if what == "odd":
            return object()
        if what == "ignore":
            raise Ignore
        if what == "reject":
            raise Reject("no")
        if what == "requeue" and log.count("requeue") == 1:
            raise Reject("not now", requeue=True)
        if what == "outage" and log.count("outage") == 1:
            raise errors.StoreUnavailable("away")
        if what == "large error":
            raise ValueError("x" * 20_000)
        if what == "unspeakable":
            raise Unspeakable
        return what

    @durable
    @app.task(shared=False, name="shop.unsendable", bind=True)
    def unsendable(self: Any, *args: Any) -> None:
        log.append("unsendable")
        raise self.retry(args=(object(),), countdown=0)

    @durable
    @app.task(shared=False, name="shop.silent", ignore_result=True)
    def silent() -> object:
        log.append("silent")
        return object()


class Unspeakable(Exception):
    """As bad as a user's exception can be."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


@contextmanager
def _signals() -> Iterator[list[str]]:
    seen: list[str] = []
    connected = {
        name: (getattr(signals, name), lambda name=name, **more: seen.append(f"{name} {more.get('state', '')}".strip()))
        for name in ("task_prerun", "task_postrun", "task_success", "task_failure", "task_retry")
    }
    for signal, receiver in connected.values():
        signal.connect(receiver, weak=False)
    try:
        yield seen
    finally:
        for signal, receiver in connected.values():
            signal.disconnect(receiver)


def test_current_is_the_claim_of_the_running_task(bench: Shop) -> None:
    result = bench.app.tasks["shop.who"].apply_async(argus_project="import", argus_key="k")
    with bench.worker():
        assert result.get(timeout=20) == [True, 2, 1, "import", "k"]


def test_without_a_claim_current_is_empty_and_says_so() -> None:
    assert not current
    assert (current.task_id, current.token, current.attempt, current.previous) == (None, None, 1, None)
    assert not current.lost.is_set()
    current.check()
    with pytest.raises(errors.NoClaim):
        current.transaction()


def test_copies_of_a_message_are_refused_without_a_sign_of_a_run(bench: Shop, redis_broker: str) -> None:
    client = redis.Redis.from_url(redis_broker)
    result = bench.app.tasks["shop.who"].apply_async(link=bench.app.tasks["shop.after"].si())
    raw = client.lindex("celery", 0)
    client.rpush("celery", raw, raw)
    with _signals() as seen, bench.worker():
        result.get(timeout=20)
        bench.drained()
        client.rpush("celery", raw)
        until(lambda: client.llen("celery") == 0 and client.hlen("unacked") == 0)
    assert sorted(bench.log) == ["after", "who"]
    assert seen.count("task_prerun") == seen.count("task_postrun SUCCESS") == seen.count("task_success") == 2


def test_a_run_that_lost_its_lease_leaves_nothing_behind(bench: Shop) -> None:
    store = bench.argus.runtime.store
    after = bench.app.tasks["shop.after"]
    with _signals() as seen, bench.worker():
        result = bench.app.tasks["shop.slow"].apply_async(link=after.si(), link_error=after.si())
        until(lambda: "start" in bench.log)
        taken = sa.update(leases).values(holder="wother", token=leases.c.token + 2)
        store.transaction(lambda connection: connection.execute(taken))
        bench.gate.set()  # type: ignore[attr-defined]
        until(lambda: "task_postrun IGNORED" in seen or "task_postrun SUCCESS" in seen)
    assert seen == ["task_prerun", "task_postrun IGNORED"]
    assert bench.task(result.id).state is TaskState.RUNNING, "the other holder's claim stands"
    assert bench.names() == ["slow"], "its callbacks were not recorded"
    assert result.state == "STARTED" if result.backend.__class__.__name__ == "ArgusBackend" else "PENDING"


@pytest.mark.parametrize(
    ("what", "state", "told"),
    [
        ("odd", TaskState.FAILED, "JSON|serializ"),
        ("large", TaskState.FAILED, "argus_max_payload"),
        ("large error", TaskState.FAILED, "ValueError|xxx"),
        ("unspeakable", TaskState.FAILED, "Unspeakable"),
        ("reject", TaskState.FAILED, "no"),
        ("ignore", TaskState.SUCCEEDED, None),
    ],
)
def test_each_run_comes_to_one_visible_end(bench: Shop, what: str, state: TaskState, told: str | None) -> None:
    result = bench.app.tasks["shop.say"].delay(what)
    with bench.worker():
        ended = bench.ended(result.id)
        assert ended.state is state
        if told is not None:
            assert ended.error is not None
            if what in ("odd", "large", "large error"):
                with pytest.raises(Exception, match=told):
                    result.get(timeout=10)
    assert bench.log == [what]
    assert [one.token for one in reports.attempt_rows(bench.argus.runtime.store, result.id)] == [2]


def test_reject_with_requeue_runs_again_without_a_loss(bench: Shop) -> None:
    result = bench.app.tasks["shop.say"].delay("requeue")
    with bench.worker():
        assert result.get(timeout=20) == "requeue"
    assert bench.log == ["requeue"] * 2
    assert bench.task(result.id).losses == 0


def test_a_run_that_follows_a_rejected_one_is_told_that_its_message_was_delivered_before(bench: Shop) -> None:
    @durable
    @bench.app.task(shared=False, name="shop.once_more", bind=True)
    def once_more(self: Any) -> str:
        if not self.request.delivery_info["redelivered"]:
            raise Reject(requeue=True)
        return "second"

    result = once_more.delay()
    with bench.worker():
        assert result.get(timeout=20) == "second"
    assert bench.task(result.id).attempts == 2


def test_a_task_rejected_for_good_has_failed_for_everyone(bench: Shop) -> None:
    @durable
    @bench.app.task(shared=False, name="shop.told")
    def told(*args: Any) -> None:
        bench.log.append("told")

    with _signals() as seen, bench.worker():
        result = bench.app.tasks["shop.say"].apply_async(("reject",), link_error=told.s())
        with pytest.raises(Reject):
            result.get(timeout=20)
        bench.drained()
        until(lambda: "task_failure" in seen)
    assert bench.log == ["reject", "told"]


def test_a_retry_that_cannot_be_sent_is_a_failure_that_everyone_is_told(bench: Shop) -> None:
    result = bench.app.tasks["shop.unsendable"].delay()
    with bench.worker():
        assert bench.ended(result.id).state is TaskState.FAILED
        bench.argus.runtime.store.clock_shift += 11_000
        bench.argus.pay_debts()
        with pytest.raises(Exception, match="serializable"):
            result.get(timeout=10)
    assert bench.log == ["unsendable"]


def test_an_outage_that_a_body_meets_is_no_failure_of_its_task(bench: Shop) -> None:
    result = bench.app.tasks["shop.say"].delay("outage")
    with _signals() as seen, bench.worker():
        assert result.get(timeout=20) == "outage"
    assert bench.log == ["outage"] * 2
    assert bench.task(result.id).losses == 0
    assert "task_failure" not in seen


def test_an_ignored_result_is_not_looked_at(bench: Shop) -> None:
    result = bench.app.tasks["shop.silent"].delay()
    with bench.worker():
        assert bench.ended(result.id).state is TaskState.SUCCEEDED
    assert bench.rows()[result.id].result is None


def test_arguments_above_the_limit_are_refused_before_anything_is_written(bench: Shop, redis_broker: str) -> None:
    with pytest.raises(errors.PayloadTooLarge, match="argus_max_payload"):
        bench.app.tasks["shop.say"].delay("x" * 20_000)
    assert bench.rows() == {}
    assert redis.Redis.from_url(redis_broker).llen("celery") == 0


def test_arguments_that_do_not_serialise_are_refused_before_anything_is_written(bench: Shop) -> None:
    with pytest.raises(Exception, match="serializable"):
        bench.app.tasks["shop.say"].delay(object())
    assert bench.rows() == {}


def test_a_result_owed_to_another_backend_is_paid_and_the_debt_struck_out(bench: Shop) -> None:
    result = bench.app.tasks["shop.say"].delay("hello")
    with bench.worker():
        assert result.get(timeout=20) == "hello"
        until(lambda: bench.rows()[result.id].undelivered == 0)


@pytest.mark.parametrize("pool", ["solo", "threads"])
def test_it_holds_in_the_pool(bench: Shop, pool: str) -> None:
    results = [bench.app.tasks["shop.say"].delay(str(i)) for i in range(10)]
    with bench.worker(pool):
        assert [result.get(timeout=20) for result in results] == [str(i) for i in range(10)]
    assert len(bench.log) == 10


@pytest.mark.parametrize("pool", ["solo", "threads"])
def test_a_worker_that_ends_inside_a_process_takes_its_threads_with_it(sqlite_store_url: str, pool: str) -> None:
    bench = shop(sqlite_store_url, "argus://")
    before = set(threading.enumerate())
    with bench.worker(pool):
        assert _argus_threads() - before
    until(lambda: not _argus_threads() - before, told=lambda: _argus_threads() - before)


def _argus_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("argus-")}


@pytest.mark.parametrize("bench", ["argus://"], indirect=True)
def test_a_run_that_ends_while_its_renewal_takes_long_has_not_lost_its_lease(
    bench: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A starved process looks at its runs, and says what it has found when they are over."""
    monkeypatch.setattr(Renewing, "_trust_of", lambda self, request: -1.0)
    renewed = threading.Event()

    def finish(**_: Any) -> None:
        renewed.set()
        bench.gate.set()  # type: ignore[attr-defined]
        until(lambda: bench.lease(result.id) is None)

    with bench.worker():
        result = bench.app.tasks["shop.slow"].delay()
        bench.until_logged("start")
        lease_renewed.connect(finish)
        try:
            for one in renewing._at_work:
                one.look()
            assert renewed.wait(15)
            assert result.get(timeout=15) == "slow"
        finally:
            lease_renewed.disconnect(finish)
    assert "is lost; its run is told to stop" not in caplog.text
