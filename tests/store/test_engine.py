"""Connections: one engine a process, deadlocks repeated, outages and missing tables named."""

from __future__ import annotations

import os
import pickle
import sqlite3
import threading
import time

import pymysql
import pytest
import sqlalchemy as sa

from argus_celery.errors import StoreError, StoreUnavailable
from argus_celery.store import engine, reports
from argus_celery.store.dialects import sqlite
from argus_celery.store.engine import Store
from argus_celery.store.schema import metadata, projects
from tests.services import free_port
from tests.store.bench import Bench


def test_the_clock_is_the_databases_in_milliseconds(store: Store) -> None:
    read = store.statement(lambda connection: connection.execute(sa.select(store.now)).scalar())
    assert isinstance(read, int)
    assert abs(read - time.time() * 1000) < 60_000


def test_a_shifted_clock_moves_by_that_many_milliseconds(store: Store) -> None:
    before = store.statement(lambda connection: connection.execute(sa.select(store.now)).scalar())
    store.clock_shift = 3_600_000
    after = store.statement(lambda connection: connection.execute(sa.select(store.now)).scalar())
    assert 3_600_000 <= after - before < 3_660_000


def test_two_transactions_that_lock_in_opposite_order_both_commit(store: Store) -> None:
    with store.engine.begin() as connection:
        for name in ("a", "b"):
            connection.execute(sa.insert(projects).values(name=name, status="open", created_at=0))
    both_hold_one = threading.Barrier(2)
    runs: list[str] = []

    def swap(first: str, second: str) -> None:
        tries = 0

        def work(connection: sa.Connection) -> None:
            nonlocal tries
            tries += 1
            runs.append(first)
            for name in (first, second):
                changed = sa.update(projects).where(projects.c.name == name).values(priority=projects.c.priority + 1)
                connection.execute(changed)
                if name == first and tries == 1 and store.dialect_name != "sqlite":
                    both_hold_one.wait(timeout=20)

        store.transaction(work)

    threads = [threading.Thread(target=swap, args=pair) for pair in (("a", "b"), ("b", "a"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    counts = store.statement(lambda connection: connection.execute(sa.select(projects.c.priority)).scalars().all())
    assert list(counts) == [2, 2]
    assert len(runs) == (2 if store.dialect_name == "sqlite" else 3)


def test_an_engine_never_crosses_a_fork(store: Store) -> None:
    mine = store.engine
    child = os.fork()
    if child == 0:
        code = 1
        try:
            count = store.statement(
                lambda connection: connection.execute(sa.select(sa.func.count(projects.c.id))).scalar()
            )
            code = 0 if store.engine is not mine and count == 0 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.engine is mine
    assert store.statement(lambda connection: connection.execute(sa.select(sa.literal(1))).scalar()) == 1


def test_a_store_can_be_pickled_for_a_spawned_child(store: Store) -> None:
    store.clock_shift = 5
    copy = pickle.loads(pickle.dumps(store))
    assert (copy.url, copy.app_name, copy.clock_shift) == (store.url, store.app_name, 5)
    assert copy.statement(lambda connection: connection.execute(sa.select(sa.literal(1))).scalar()) == 1
    copy.dispose()


def test_missing_tables_are_named_with_the_command_that_makes_them(store_url: str) -> None:
    bench = Bench(Store(store_url, app_name="shop"))
    with pytest.raises(StoreError, match="celery -A shop argus init"):
        bench.enqueue()
    bench.store.dispose()


@pytest.mark.parametrize(
    "url", ["postgresql+psycopg://root@127.0.0.1:{port}/x", "mysql+pymysql://root@127.0.0.1:{port}/x"]
)
def test_a_store_that_cannot_be_reached_is_unavailable_and_names_itself(url: str) -> None:
    store = Store(url.format(port=free_port()))
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1"):
        store.statement(lambda connection: connection.execute(sa.select(sa.literal(1))))
    assert store.outage.since is not None


def test_a_password_never_reaches_an_error_message() -> None:
    store = Store(f"postgresql+psycopg://root:hunter2@127.0.0.1:{free_port()}/x")
    with pytest.raises(StoreUnavailable) as caught:
        store.statement(lambda connection: connection.execute(sa.select(sa.literal(1))))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
def test_an_sqlite_store_in_memory_is_refused(url: str) -> None:
    with pytest.raises(StoreError, match="must be a file"):
        _ = Store(url).engine


@pytest.mark.parametrize(("url", "says"), [("oracle://x/y", "oracle"), ("no url", "not an SQLAlchemy URL")])
def test_a_url_that_cannot_work_says_why(url: str, says: str) -> None:
    with pytest.raises(StoreError, match=says):
        Store(url)


def test_writers_of_many_processes_wait_for_each_other_on_sqlite(sqlite_store_url: str) -> None:
    store = Store(sqlite_store_url)
    metadata.create_all(store.engine)
    children = [_fork_writer(store) for _ in range(4)]
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0, 0, 0]
    count = store.statement(lambda connection: connection.execute(sa.select(sa.func.count(projects.c.id))).scalar())
    assert count == 400


def _fork_writer(store: Store) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        for number in range(100):
            row = sa.insert(projects).values(name=f"{os.getpid()}-{number}", status="open", created_at=0)
            run = store.transaction if number % 2 else store.statement
            run(lambda connection, row=row: connection.execute(row))  # type: ignore[misc]
        code = 0
    finally:
        os._exit(code)


def test_a_report_reads_while_another_process_holds_the_writer(store: Store) -> None:
    with store.engine.begin() as writer:
        writer.execute(sa.insert(projects).values(name="uncommitted", status="open", created_at=0))
        began = time.monotonic()
        assert reports.all_projects(store) == []
    assert time.monotonic() - began < 10


def test_a_driver_that_is_not_installed_is_named_with_the_extra_that_brings_it() -> None:
    with pytest.raises(StoreError, match=r"argus-celery\[mysql\]"):
        _ = Store("mysql+asyncmy://root@127.0.0.1/x").engine


@pytest.mark.mariadb
def test_on_mariadb_a_statement_is_one_round_trip_and_a_transaction_two_more(
    mariadb_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, trips = Store(sa.make_url(mariadb_store_url).set(drivername="mysql+pymysql")), []
    one = lambda connection: connection.execute(sa.text("SELECT 1")).scalar()  # noqa: E731
    store.statement(one)
    send = pymysql.connections.Connection._execute_command
    monkeypatch.setattr(
        pymysql.connections.Connection,
        "_execute_command",
        lambda self, command, sql: (trips.append(sql), send(self, command, sql)),
    )
    store.statement(one)
    assert trips == [b"SELECT 1"]
    trips.clear()
    store.read(one)
    assert trips == [b"SELECT 1"]
    trips.clear()
    store.transaction(lambda connection: (one(connection), one(connection)))
    assert trips == [b"BEGIN", b"SELECT 1", b"SELECT 1", "COMMIT"]


def test_what_was_written_before_an_error_is_rolled_back(bench: Bench) -> None:
    insert = sa.insert(projects).values(name="a", status="open", created_at=0)

    def failing(connection: sa.Connection) -> None:
        connection.execute(insert)
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        bench.store.transaction(failing)
    names = bench.store.statement(lambda connection: connection.execute(sa.select(projects.c.name)).scalars().all())
    assert "a" not in names


def test_a_writer_that_does_not_let_go_is_waited_for_once(
    sqlite_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_S", 1.0)
    monkeypatch.setattr(engine, "PATIENCE", 0.5)
    store = Store(sqlite_store_url)
    store.transaction(lambda connection: None)
    with sqlite3.connect(store.url.database or "") as other:
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match="locked"):
            store.transaction(lambda connection: None)
    assert time.monotonic() - began < 5
    store.dispose()
