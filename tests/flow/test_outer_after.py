"""``after`` in a transaction of the user's: what waits, and for whom, commits and rolls back with their data."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from argus_celery.errors import BadTask, BadTransaction
from argus_celery.flow.complete import complete
from argus_celery.flow.dispatch import dispatch
from argus_celery.records import Outcome, TaskState
from argus_celery.store.schema import edges
from tests.flow.conftest import FlowBench
from tests.flow.test_outer import order, orders, put, recorded, user

__all__ = ["user"]

DONE, BROKE = Outcome(TaskState.SUCCEEDED), Outcome(TaskState.FAILED, error="broke")


def sent(bench: FlowBench) -> list[str]:
    return [one.task_id for one in bench.sent]


def test_what_is_committed_waits_for_parents_of_before_and_of_the_same_transaction(
    bench: FlowBench, user: sa.Engine
) -> None:
    before = bench.running(key="before")
    with Session(user) as session:
        put(bench, session, id="beside")
        put(bench, session, id="child", after=("before", "beside"))
        order(session, 1)
        session.commit()
    assert (sent(bench), bench.lease("child").waits) == ([before.task_id, "beside"], 2)
    complete(bench.rt, before, DONE)
    beside = bench.claim("w1", "beside")
    assert beside is not None
    complete(bench.rt, beside, DONE)
    assert sent(bench)[-1] == "child"


def test_what_is_rolled_back_was_waited_for_by_nobody(bench: FlowBench, user: sa.Engine) -> None:
    parent = bench.running()
    with user.connect() as connection:
        put(bench, connection, id="child", after=(parent.task_id,))
        with connection.begin_nested() as savepoint:
            put(bench, connection, id="grandchild", after=("child",))
            savepoint.rollback()
        with pytest.raises(BadTask, match="is to come after 'grandchild'"):
            put(bench, connection, after=("grandchild",))
        connection.rollback()
    assert bench.lease(parent.task_id).leads == 0
    assert bench.store.read(lambda connection: connection.execute(sa.select(edges)).all()) == []
    complete(bench.rt, parent, DONE)
    assert (recorded(bench), len(bench.sent)) == (1, 1)


def test_what_comes_after_a_failure_is_abandoned_with_the_commit(bench: FlowBench, user: sa.Engine) -> None:
    failed = bench.running()
    complete(bench.rt, failed, BROKE)
    with user.connect() as connection:
        put(bench, connection, id="child", after=(failed.task_id,))
        put(bench, connection, id="grandchild", after=("child",))
        put(bench, connection, id="regardless", after=(failed.task_id,), regardless=True)
        connection.commit()
    assert {bench.task(one).outcome for one in ("child", "grandchild")} == {TaskState.FAILED}
    assert sent(bench) == [failed.task_id, "regardless"]


def test_a_parent_that_ends_meanwhile_waits_for_the_commit_and_releases_the_child(
    bench: FlowBench, user: sa.Engine
) -> None:
    parent = bench.running()
    with ThreadPoolExecutor(1) as pool, user.connect() as connection:
        put(bench, connection, id="child", after=(parent.task_id,))
        ending = pool.submit(complete, bench.rt, parent, DONE)
        with pytest.raises(TimeoutError):
            ending.result(0.2)
        connection.commit()
        ending.result(30)
    dispatch(bench.rt)
    assert sent(bench)[-1] == "child"


def test_a_parent_that_came_since_the_transaction_began_is_met_or_refused(bench: FlowBench, user: sa.Engine) -> None:
    if bench.store.dialect_name == "sqlite":
        pytest.skip("its transactions see what is committed, or may not write")
    with user.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        order(connection, 1)
        parent, ended = bench.running(), bench.running(key="ended")
        complete(bench.rt, ended, DONE)
        put(bench, connection, id="behind what has ended", after=("ended",))
        if bench.store.dialect_name == "postgresql":
            with pytest.raises(BadTransaction, match="begin the transaction anew"):
                put(bench, connection, id="child", after=(parent.task_id,))
        else:
            put(bench, connection, id="child", after=(parent.task_id,))
        connection.commit()
    complete(bench.rt, parent, DONE)
    assert bench.lease("behind what has ended") is not None
    assert bench.store.dialect_name == "postgresql" or sent(bench)[-1] == "child"
    assert orders(user) == [1]
