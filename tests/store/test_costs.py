"""What the protocol costs, in transactions, statements and rows touched. Speed is for benchmarks; counts are exact."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from argus_celery.flow.claim import claim
from argus_celery.flow.complete import complete, complete_many
from argus_celery.flow.enqueue import enqueue
from argus_celery.flow.renew import renew
from argus_celery.flow.restore import probe, sweep
from argus_celery.records import Claim, Delivery, Outcome, TaskState
from argus_celery.store import backlog, leases, steps
from argus_celery.store.engine import Store
from tests.store.bench import Bench, counted, fill, new_task

DONE = Outcome(TaskState.SUCCEEDED, b"{}")


@pytest.fixture
def warm(bench: Bench) -> Bench:
    """Past what a process does once: the default project and its queue are known."""
    complete(bench.rt, bench.running(), DONE)
    return bench


def test_a_task_enqueued_claimed_and_completed_alone_takes_three_transactions(warm: Bench) -> None:
    with counted(warm.store) as count:
        complete(warm.rt, warm.running(), DONE)
    assert count.transactions == 3


def test_a_batch_of_tasks_is_enqueued_claimed_and_completed_in_one_transaction_each(warm: Bench) -> None:
    with counted(warm.store) as count:
        ids = [one.task_id for one in enqueue(warm.rt, [new_task() for _ in range(200)])]
        claims = claim(warm.rt, "w1", [Delivery(task, 1) for task in ids])
        assert all(complete_many(warm.rt, [(one, DONE) for one in claims if one is not None]))
    assert count.transactions == 3
    assert len(claims) == 200


def test_a_failure_in_a_project_without_a_policy_costs_what_a_success_does(warm: Bench) -> None:
    ends = []
    for state in (TaskState.SUCCEEDED, TaskState.FAILED):
        claim = warm.running()
        with counted(warm.store) as count:
            complete(warm.rt, claim, Outcome(state, b"{}"))
        ends.append((count.transactions, count.statements))
    assert ends[0] == ends[1]


def test_a_renewal_is_one_transaction_whatever_the_number_of_claims(warm: Bench) -> None:
    claims = [warm.running() for _ in range(30)]
    with counted(warm.store) as count:
        renew(warm.rt, "w1", [(one.task_id, one.token) for one in claims])
    assert count.transactions == 1
    assert count.statements == (2 if warm.store.dialect_name == "mysql" else 1)


def test_an_idle_sweep_writes_nothing_and_a_probe_is_one_statement(warm: Bench) -> None:
    with counted(warm.store) as count:
        sweep(warm.rt)
    assert (count.transactions, count.statements) == (0, 1)
    with counted(warm.store) as count:
        assert probe(warm.rt) is False
    assert count.statements == 1


@pytest.mark.parametrize("question", ["heads", "dispatch"])
def test_the_scheduler_touches_as_many_rows_with_20_000_scheduled_and_finished_tasks_as_with_200(
    warm: Bench, question: str
) -> None:
    if warm.store.dialect_name == "sqlite":
        pytest.skip("SQLite does not count rows read; test_sqlite_goes_through_no_table shows its plans")
    few = _touched_after(warm, 200, question)
    many = _touched_after(warm, 20_000, question)
    assert many <= few + 20, f"{few} rows touched among 200, {many} among 20,000"


def _touched_after(bench: Bench, fill: int, question: str) -> int:
    _fill(bench.store, fill)
    for _ in range(20):
        bench.enqueue(delay_ms=1, queue="celery")
    bench.pass_time(1)
    level = backlog.Level("celery", 0, 0)
    work = {
        "heads": lambda c: backlog.heads(bench.store, c),
        "dispatch": lambda c: leases.due_waiting(bench.store, c, level, 10),
    }[question]
    return _rows_touched(bench.store, work)


def _fill(store: Store, count: int) -> None:
    """As many finished tasks as scheduled ones, known to the planner."""
    fill(store, count, count, tag=str(count))
    with store.engine.connect() as connection:
        connection.execute(sa.text("ANALYZE" if store.dialect_name == "postgresql" else "ANALYZE TABLE argus_leases"))
        connection.commit()


def _rows_touched(store: Store, work: Any) -> int:
    if store.dialect_name == "mysql":
        with store.engine.begin() as connection:
            connection.execute(sa.text("FLUSH STATUS"))
            work(connection)
            status = connection.execute(sa.text("SHOW SESSION STATUS LIKE 'Handler_read%'")).all()
        return sum(int(value) for _, value in status)
    return _rows_of_plan(store, work)


def _rows_of_plan(store: Store, work: Any) -> int:
    """Rows that the scans of PostgreSQL's executed plan returned or threw away."""
    sent: list[tuple[str, Any]] = []

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, *rest: Any) -> None:
        sent.append((statement, parameters))

    sa.event.listen(store.engine, "before_cursor_execute", note)
    try:
        store.transaction(work)
    finally:
        sa.event.remove(store.engine, "before_cursor_execute", note)
    explain = "EXPLAIN (ANALYZE, FORMAT JSON) "
    with store.engine.begin() as connection:
        plan = connection.exec_driver_sql(explain + sent[0][0], sent[0][1]).scalar()
    return _scanned(plan[0]["Plan"])


def _scanned(node: dict[str, Any]) -> int:
    here = 0
    if "Scan" in node["Node Type"]:
        thrown = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
        here = round((node["Actual Rows"] + thrown) * node["Actual Loops"])
    return here + sum(_scanned(child) for child in node.get("Plans", []))


def test_sqlite_goes_through_no_table(sqlite_store_url: str) -> None:
    from argus_celery.store.schema import metadata

    store = Store(sqlite_store_url)
    metadata.create_all(store.engine)
    sent: list[tuple[str, Any]] = []

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, *rest: Any) -> None:
        sent.append((statement, parameters))

    sa.event.listen(store.engine, "before_cursor_execute", note)
    hot = [
        lambda c: backlog.heads(store, c),
        lambda c: leases.due_waiting(store, c, backlog.Level("q", 0, 0), 10),
        lambda c: leases.due_held(store, c, 10, workers_too=True),
        lambda c: leases.grant(store, c, "w1", "m", [Delivery("a", 1), Delivery("b", 1)]),
        lambda c: leases.renew(store, c, "w1", [("a", 2)]),
        lambda c: leases.lock_held(store, c, "w1", [("a", 2)]),
        lambda c: backlog.in_broker(c),
        lambda c: steps.insert(store, c, Claim("a", 2, "w1", 1, 30_000, 0.0), {"one": b"1", "two": None}),
        lambda c: steps.names(c, "a"),
    ]
    for work in hot:
        store.transaction(work)
    sa.event.remove(store.engine, "before_cursor_execute", note)
    plans = []
    with store.engine.begin() as connection:
        for statement, parameters in sent:
            if not statement.startswith("BEGIN"):
                plans += connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
    scans = [row[3] for row in plans if row[3].startswith("SCAN argus_") and "argus_queues" not in row[3]]
    assert len(sent) > len(hot)
    assert scans == []
