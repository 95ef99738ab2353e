"""Rules 10 and 17: ``transaction`` commits a run's own writes with the fence check, and holds the lease meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from argus_celery.errors import LeaseLost, StoreError
from argus_celery.flow.complete import complete
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.lapse import lapse
from argus_celery.flow.transaction import transaction
from argus_celery.records import Claim, Outcome, TaskState
from argus_celery.store import leases
from argus_celery.store.outer.base import outside
from tests.flow.conftest import FlowBench
from tests.flow.faults import meanwhile

effects = sa.Table(
    "effects", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("tag", sa.String(36))
)


@pytest.fixture
def shop(bench: FlowBench) -> Iterator[FlowBench]:
    """The application's own table, with no unique key, in the store's database."""
    effects.create(bench.store.engine)
    yield bench
    effects.drop(bench.store.engine)


def write(bench: FlowBench, claim: Claim) -> None:
    with transaction(bench.rt, claim) as connection:
        connection.execute(sa.insert(effects).values(tag=claim.task_id))


def written(bench: FlowBench) -> int:
    query = sa.select(sa.func.count()).select_from(effects)
    return int(bench.store.statement(lambda c: c.execute(query).scalar_one()))


def test_a_stale_run_writes_nothing_and_the_one_that_holds_the_lease_writes_once(shop: FlowBench) -> None:
    old = shop.running("w1")
    shop.pass_time(7)
    dispatch(shop.rt)
    new = shop.claim("w2", old.task_id)
    assert new is not None
    write(shop, new)
    with pytest.raises(LeaseLost):
        write(shop, old)
    assert written(shop) == 1


def test_a_run_that_has_ended_writes_nothing(shop: FlowBench) -> None:
    claim = shop.running()
    complete(shop.rt, claim, Outcome(TaskState.SUCCEEDED))
    with pytest.raises(LeaseLost):
        write(shop, claim)
    assert written(shop) == 0


def test_a_body_that_raises_takes_its_writes_back_and_keeps_the_lease(shop: FlowBench) -> None:
    claim = shop.running()

    def half() -> None:
        with transaction(shop.rt, claim) as connection:
            connection.execute(sa.insert(effects).values(tag="half"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        half()
    assert written(shop) == 0
    write(shop, claim)


def test_it_moves_the_lapse_on_when_it_locks_and_again_before_it_commits(shop: FlowBench) -> None:
    claim = shop.running()
    granted_until = shop.lease(claim.task_id).eligible_at
    shop.pass_time(5)
    with transaction(shop.rt, claim) as connection:
        inside = connection.execute(sa.text("SELECT eligible_at FROM argus_leases")).scalar_one()
        assert inside >= granted_until + 5000
        shop.pass_time(2)
    assert shop.lease(claim.task_id).eligible_at >= inside + 2000
    shop.pass_time(5)
    assert not dispatch(shop.rt).lapsed


def test_who_writes_for_the_same_task_waits_for_the_transaction(shop: FlowBench) -> None:
    claim = shop.running()

    def begun(connection: sa.Connection) -> None:
        assert leases.extend(shop.store, connection, claim.task_id, claim.token, claim.holder)

    state = meanwhile(shop.store, begun, lambda: lapse(shop.rt, "w1", claim.task_id, claim.token, "signal 9"))
    assert state is TaskState.QUEUED


def test_dispatch_does_not_take_a_row_whose_transaction_is_open_although_its_lease_has_lapsed(shop: FlowBench) -> None:
    if shop.store.dialect_name == "sqlite":
        return  # dispatch waits there: the transaction is the only writer
    claim = shop.running()
    with transaction(shop.rt, claim) as connection:
        connection.execute(sa.insert(effects).values(tag="slow"))
        shop.pass_time(7)
        with outside():  # as another process
            assert not dispatch(shop.rt).dispatched
    assert written(shop) == 1
    assert not dispatch(shop.rt).dispatched


def test_on_sqlite_a_transaction_that_takes_half_the_ttl_is_rolled_back(shop: FlowBench) -> None:
    if shop.store.dialect_name != "sqlite":
        return  # others have more than one writer
    claim = shop.running(lease_ttl_ms=1000)

    def slow() -> None:
        with transaction(shop.rt, claim) as connection:
            connection.execute(sa.insert(effects).values(tag="slow"))
            began = time.monotonic()
            while time.monotonic() - began < 0.6:
                connection.execute(sa.text("SELECT 1"))

    with pytest.raises(StoreError, match="half of argus_lease_ttl"):
        slow()
    assert written(shop) == 0


def test_on_mariadb_a_body_that_catches_a_deadlock_can_write_nothing_after_it(shop: FlowBench) -> None:
    if shop.store.dialect_name != "mysql":
        return  # PostgreSQL refuses whatever follows an error by itself, and SQLite knows no deadlock
    with shop.store.engine.begin() as connection:
        connection.execute(sa.insert(effects), [{"id": 1, "tag": "first"}, {"id": 2, "tag": "second"}])
    claim, both_hold_one = shop.running(), threading.Barrier(2)

    def careless() -> None:
        with transaction(shop.rt, claim) as connection:
            _touch(connection, 1)
            both_hold_one.wait(timeout=20)
            with pytest.raises(sa.exc.OperationalError, match="1213"):
                _touch(connection, 2)
            connection.execute(sa.insert(effects).values(tag="after"))

    rival = threading.Thread(target=_cross, args=(shop, both_hold_one))
    rival.start()
    with pytest.raises(sa.exc.InvalidRequestError, match="closed transaction"):
        careless()
    rival.join(timeout=30)
    assert written(shop) == 2


def _touch(connection: sa.Connection, number: int) -> None:
    connection.execute(sa.update(effects).where(effects.c.id == number).values(tag="touched"))


def _cross(shop: FlowBench, both_hold_one: threading.Barrier) -> None:
    """Lock the rows in the other order, having written so much that the other one is the victim; take all back."""
    with shop.store.engine.connect() as connection:
        connection.execute(sa.insert(effects), [{"tag": "many"} for _ in range(100)])
        _touch(connection, 2)
        both_hold_one.wait(timeout=20)
        _touch(connection, 1)
        connection.rollback()
