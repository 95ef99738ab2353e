"""Statements that are compiled once: they mean the same on whatever connection, and what goes wrong has its names."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.errors import StoreUnavailable
from argus_celery.flow.complete import complete
from argus_celery.flow.enqueue import enqueue
from argus_celery.records import Delivery, Outcome, TaskState
from argus_celery.store import leases, projects
from argus_celery.store.engine import DuplicateRow, Store
from argus_celery.store.hot import Hot, filled, listed, size
from argus_celery.store.schema import projects as table
from tests.store.bench import Bench, counted, new_task

DONE = Outcome(TaskState.SUCCEEDED, b"{}")


@Hot
def _numbers(store: Store, many: int) -> sa.Select[tuple[int, str]]:
    given = listed("id", many, sa.BigInteger)
    return sa.select(table.c.id, table.c.name).where(table.c.id.in_(given))


def _three_projects(store: Store) -> list[tuple[int, str]]:
    for name in ("a%", "b", "c"):
        store.transaction(lambda connection, name=name: projects.insert(store, connection, name, {}))  # type: ignore[misc]
    query = sa.select(table.c.id, table.c.name).order_by(table.c.id)
    return [(row.id, row.name) for row in store.statement(lambda connection: connection.execute(query).all())]


@pytest.mark.parametrize("observed", [False, True])
def test_a_list_of_any_length_finds_its_rows_observed_or_not(store: Store, observed: bool) -> None:
    rows = _three_projects(store)

    def find(count: int) -> list[tuple[int, str]]:
        values = filled("id", [id_ for id_, _ in rows[:count]])
        return sorted(store.statement(lambda c: _numbers.rows(store, c, values, size(count))))

    if observed:
        with counted(store) as count:
            assert [find(one) for one in (1, 2, 3)] == [rows[:1], rows[:2], rows]
        assert count.statements == 3
    else:
        assert [find(one) for one in (1, 2, 3)] == [rows[:1], rows[:2], rows]


def test_a_connection_of_the_users_finds_the_same(store: Store) -> None:
    rows = _three_projects(store)
    other = sa.create_engine(store.url)
    with other.connect() as connection:
        assert _numbers.rows(store, connection, filled("id", [rows[0][0]]), 1) == rows[:1]
    other.dispose()


def test_a_shifted_clock_is_seen_by_a_statement_that_was_compiled_before(bench: Bench) -> None:
    first = bench.running()
    bench.pass_time(3600)
    second = bench.running()
    assert 3_600_000 <= bench.lease(second.task_id).eligible_at - bench.lease(first.task_id).eligible_at < 3_660_000


def test_a_key_that_is_taken_is_a_duplicate(store: Store) -> None:
    bench = Bench(store)
    task_id = bench.enqueue()
    row = bench.lease(task_id)._mapping
    given = {**row, "delay": 0, "due_at": None, "expires_in": None, "expires_at_abs": None}
    with pytest.raises(DuplicateRow):
        store.transaction(lambda connection: leases.insert(store, connection, [given]))


def test_a_connection_that_the_server_has_cut_is_an_outage_and_the_next_call_works(store: Store) -> None:
    if store.dialect_name == "sqlite":
        pytest.skip("SQLite has no server")
    bench = Bench(store)
    bench.running()
    ask, cutting = {
        "postgresql": ("SELECT pg_backend_pid()", "SELECT pg_terminate_backend({})"),
        "mysql": ("SELECT connection_id()", "KILL {}"),
    }[store.dialect_name]

    def cut(connection: Connection) -> None:
        mine = connection.exec_driver_sql(ask).scalar_one()
        other = sa.create_engine(store.url, poolclass=sa.NullPool)
        with other.connect() as killer:
            killer.exec_driver_sql(cutting.format(mine))
        leases.grant(store, connection, "w1", "m", [Delivery("a", 1)])

    with pytest.raises(StoreUnavailable):
        store.transaction(cut)
    assert bench.running() is not None


def test_a_plain_end_is_one_statement_where_the_database_can(bench: Bench) -> None:
    complete(bench.rt, bench.running(), DONE)
    for state in (TaskState.SUCCEEDED, TaskState.FAILED):
        claim = bench.running()
        with counted(bench.store) as count:
            complete(bench.rt, claim, Outcome(state, b"{}", error="why" if state is TaskState.FAILED else None))
        row = bench.task(claim.task_id)
        assert (row.outcome, row.fence, row.attempts, row.result) == (state, claim.token, 1, b"{}")
        assert bench.lease(claim.task_id) is None
        assert count.transactions == 1
        assert count.statements == (1 if bench.store.dialect.writes_in_with else 4)


def test_new_tasks_are_entered_with_their_leases(bench: Bench) -> None:
    for many in (1, 3):
        for one in enqueue(bench.rt, [new_task(delay_ms=1000) for _ in range(many)]):
            assert bench.task(one.task_id).name == "shop.charge"
            assert bench.lease(one.task_id).holder == ""
