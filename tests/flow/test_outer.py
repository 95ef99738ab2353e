"""A transaction of the user's: what is enqueued inside it is part of it, and is published behind its commit."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from argus_celery.errors import BadTask, BadTransaction, ProjectClosed, StoreError
from argus_celery.flow import steer
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.enqueue import enqueue
from argus_celery.flow.transaction import transaction
from argus_celery.records import Enqueued
from argus_celery.store.engine import Store
from argus_celery.store.outer import outer_of
from argus_celery.store.schema import tasks
from argus_celery.store.setup import HEAD
from tests.flow.conftest import FlowBench
from tests.flow.faults import LossyBroker
from tests.store.bench import new_task


@pytest.fixture
def user(bench: FlowBench) -> Iterator[sa.Engine]:
    """The user's own engine, made as anybody would, on a database with a table of theirs."""
    engine = sa.create_engine(bench.store.url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        connection.exec_driver_sql("CREATE TABLE argus_version (version_num VARCHAR(32))")
        connection.exec_driver_sql(f"INSERT INTO argus_version VALUES ('{HEAD}')")
    yield engine
    engine.dispose()


def put(bench: FlowBench, session: Any, **more: Any) -> Enqueued:
    with outer_of(bench.store, session).inside():
        return enqueue(bench.rt, [new_task(**more)])[0]


def order(session: Any, number: int) -> None:
    session.execute(sa.text(f"INSERT INTO orders VALUES ({number})"))


def recorded(bench: FlowBench) -> int:
    return bench.store.read(lambda connection: connection.scalar(sa.select(sa.func.count()).select_from(tasks)))


def orders(engine: sa.Engine) -> list[int]:
    with engine.connect() as connection:
        return list(connection.scalars(sa.text("SELECT id FROM orders ORDER BY id")))


def test_a_task_is_seen_and_published_once_the_session_has_committed(bench: FlowBench, user: sa.Engine) -> None:
    for number, session in enumerate((Session(user), scoped_session(sessionmaker(user))), 1):
        if number == 1:
            order(session, number)  # before the task, or after it
        put(bench, session)
        if number == 2:
            order(session, number)
        assert (recorded(bench), len(bench.sent)) == (number - 1, number - 1)
        session.commit()
        assert (recorded(bench), len(bench.sent)) == (number, number)
        session.close()
    assert bench.claim("w1") is not None
    assert orders(user) == [1, 2]


def test_nothing_is_left_of_a_transaction_that_does_not_commit(bench: FlowBench, user: sa.Engine) -> None:
    for end in (sa.Connection.rollback, sa.Connection.close):
        with user.connect() as connection:
            put(bench, connection, project="new")
            order(connection, 1)
            end(connection)
    with user.connect() as connection:
        put(bench, connection)
        connection.rollback()
        order(connection, 2)
        connection.commit()  # of another transaction
    assert (recorded(bench), bench.sent, orders(user)) == (0, [], [2])
    bench.enqueue(project="new")  # what was made for the task is not remembered as made
    assert len(bench.sent) == 1


def test_savepoints_take_back_what_was_enqueued_in_them_and_publish_nothing(bench: FlowBench, user: sa.Engine) -> None:
    with Session(user) as session:
        first = session.begin_nested()
        inner = session.begin_nested()
        put(bench, session, id="released, and then rolled back with the outer one")
        inner.commit()
        first.rollback()
        put(bench, session, id="kept")
        with session.begin_nested():
            put(bench, session, id="kept too")
        session.commit()
    assert [one.task_id for one in bench.sent] == ["kept", "kept too"]
    assert recorded(bench) == 2
    # A session that stands on a connection's transaction only seems to commit.
    with user.connect() as connection, connection.begin() as outer:
        with Session(connection, join_transaction_mode="create_savepoint") as session:
            put(bench, session)
            session.commit()
        assert len(bench.sent) == 2
        outer.commit()
    assert len(bench.sent) == 3


def test_a_known_key_leads_to_the_first_task_and_leaves_the_transaction_whole(
    bench: FlowBench, user: sa.Engine
) -> None:
    first = bench.enqueue(key="k")
    with Session(user) as session:
        order(session, 1)
        assert put(bench, session, key="k") == Enqueued(first, created=False, token=0)
        mine = put(bench, session, key="mine")
        assert put(bench, session, key="mine").task_id == mine.task_id
        assert put(bench, session, id=first).task_id == first  # not looked for before it is met
        session.commit()
    assert orders(user) == [1]
    assert len(bench.sent) == 2


def test_what_came_after_the_transaction_began_holds(bench: FlowBench, user: sa.Engine) -> None:
    if bench.store.dialect_name == "sqlite":
        pytest.skip("its transactions see what is committed, or may not write")
    with user.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        connection.execute(sa.select(tasks.c.id)).all()
        first = bench.enqueue(key="k")
        for name in ("paused", "closed"):
            steer.open_project(bench.rt, name)
        steer.pause(bench.rt, "paused")
        steer.close(bench.rt, "closed")
        assert put(bench, connection, key="k").task_id == first
        paused = put(bench, connection, project="paused")
        with pytest.raises(ProjectClosed):
            put(bench, connection, project="closed")
        order(connection, 1)
        connection.commit()
    assert bench.lease(paused.task_id).paused == 1
    assert [one.task_id for one in bench.sent] == [first]
    assert orders(user) == [1]


def test_steering_waits_for_a_transaction_that_has_enqueued(bench: FlowBench, user: sa.Engine) -> None:
    bench.enqueue(project="p")
    with ThreadPoolExecutor(1) as pool, user.connect() as connection:
        task = put(bench, connection, project="p")
        pausing = pool.submit(steer.pause, bench.rt, "p")
        with pytest.raises(TimeoutError):
            pausing.result(0.2)
        connection.commit()
        pausing.result(30)
    assert bench.lease(task.task_id).paused == 1


def test_inside_a_running_task_the_claims_own_transaction_takes_tasks(bench: FlowBench) -> None:
    claim = bench.running()
    with transaction(bench.rt, claim) as connection:
        put(bench, connection, inside=True, project_id=claim.project_id)
        assert len(bench.sent) == 1
    assert len(bench.sent) == 2
    with pytest.raises(BadTask), transaction(bench.rt, claim) as connection:
        put(bench, connection) and put(bench, connection, key="")
    assert (recorded(bench), len(bench.sent)) == (2, 2)


def test_a_claims_own_transaction_and_a_pause_do_not_wait_for_each_other(bench: FlowBench) -> None:
    claim = bench.running(project="p")
    with ThreadPoolExecutor(1) as pool:
        with transaction(bench.rt, claim) as connection:
            pausing = pool.submit(steer.pause, bench.rt, "p")
            wait([pausing], timeout=0.3)
            task = put(bench, connection, inside=True, project_id=claim.project_id)
        pausing.result(30)
    assert bench.lease(task.task_id).paused == 1


def test_a_broker_that_is_away_does_not_harm_the_transaction(bench: FlowBench, user: sa.Engine) -> None:
    away = LossyBroker()
    away.refuses = True
    with user.connect() as connection:
        with outer_of(bench.store, connection).inside():
            task = enqueue(replace(bench.rt, publish=away.publish), [new_task()])[0]
        connection.commit()
    bench.pass_time(2)
    assert dispatch(bench.rt).dispatched == (task.task_id,)


def test_a_message_that_never_leaves_is_dispatched_when_its_row_lapses(bench: FlowBench, user: sa.Engine) -> None:
    with user.connect() as connection:
        task = put(bench, connection)
        connection.exec_driver_sql("COMMIT")  # the process dies behind it
        connection.invalidate()
    assert bench.sent == []
    bench.pass_time(4)
    assert dispatch(bench.rt).dispatched == (task.task_id,)


def test_what_cannot_take_a_task_is_refused(bench: FlowBench, user: sa.Engine, tmp_path: Path) -> None:
    others = [f"sqlite:///{tmp_path / 'other.db'}"]
    if bench.store.dialect_name != "sqlite":
        others.append(bench.store.url.set(database={"postgresql": "postgres"}.get(bench.store.dialect_name, "mysql")))
    for url in others:
        with sa.create_engine(url).connect() as other, pytest.raises(BadTransaction, match="in another database"):
            put(bench, other)
    for engine in (user, sa.create_engine(user.url, isolation_level="AUTOCOMMIT")):
        connecting = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        with connecting as connection, pytest.raises(BadTransaction, match="AUTOCOMMIT"):
            put(bench, connection)
    for given in ("default", 17, sessionmaker(user), user):
        with pytest.raises(BadTransaction, match="takes an SQLAlchemy Session or Connection"):
            put(bench, given)
    with pytest.raises(BadTransaction, match="more than one database"):
        put(bench, Session())
    assert recorded(bench) == 0


def test_a_store_without_tables_is_told_at_once_and_not_waited_for(sqlite_store_url: str) -> None:
    with sa.create_engine(sqlite_store_url).begin() as connection:
        connection.exec_driver_sql("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        connection.exec_driver_sql("INSERT INTO orders VALUES (1)")
        with pytest.raises(StoreError, match="argus init"):
            outer_of(Store(sqlite_store_url), connection)
