"""What the doctor finds in a store, on each database; workers are asked in tests/integration."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from celery import Celery
from sqlalchemy.schema import CreateIndex, DropIndex

from argus_celery import Argus
from argus_celery.doctor import clocks, conf, schema, work
from argus_celery.doctor.findings import Finding, Level
from argus_celery.doctor.recovery import derive
from argus_celery.flow import chords
from argus_celery.flow.claim import claim
from argus_celery.flow.complete import complete
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.enqueue import enqueue
from argus_celery.flow.prune import Pruning
from argus_celery.flow.steer import close, open_project
from argus_celery.flow.suspend import Wait, suspend
from argus_celery.flow.unknown import hand_on
from argus_celery.records import Delivery, HolderFacts, NewChord, Outcome, TaskState
from argus_celery.store import holders, setup
from argus_celery.store.schema import holders as holders_table
from argus_celery.store.schema import tasks
from tests.flow.conftest import FlowBench
from tests.store.bench import new_task

DONE = Outcome(TaskState.SUCCEEDED, b"{}")
DAY = 24 * 3600
Look = Callable[[Any], Iterator[Finding]]


@pytest.fixture
def argus(bench: FlowBench) -> Iterator[Argus]:
    """An app on the same store. Nobody answers on its broker."""
    app = Celery("tests", broker="memory://", set_as_current=False)
    argus = Argus(app, store=bench.store.url.render_as_string(hide_password=False), **bench.settings)
    mark_version(bench, setup.HEAD)
    yield argus
    argus.runtime.store.dispose()


def mark_version(bench: FlowBench, version: str) -> None:
    """The bench has made the tables without migrations."""
    write(bench, sa.text("CREATE TABLE IF NOT EXISTS argus_version (version_num VARCHAR(32) NOT NULL)"))
    write(bench, sa.text("DELETE FROM argus_version"))
    write(bench, sa.text(f"INSERT INTO argus_version VALUES ('{version}')"))


def found(argus: Argus, look: Look, bench: FlowBench) -> tuple[Level, str]:
    """The one finding."""
    argus.runtime.store.clock_shift = bench.store.clock_shift
    (one,) = look(argus)
    if one.level in (Level.WARNING, Level.ERROR):
        assert one.fix
    return one.level, one.what


def write(bench: FlowBench, statement: Any) -> None:
    bench.store.transaction(lambda connection: connection.execute(statement))


def worker(bench: FlowBench, node: str = "celery@a", host: str = "a") -> None:
    me = HolderFacts(f"w{node}", node, host, 1, "boot", "ns", "start")
    bench.store.transaction(lambda c: holders.register(bench.store, c, me))


# --- the store -------------------------------------------------------------------------------------------------------


def test_a_missing_index_is_told_with_the_statement_that_makes_it(bench: FlowBench, argus: Argus) -> None:
    assert found(argus, schema.version, bench)[0] is Level.OK
    assert found(argus, schema.indexes, bench)[0] is Level.OK
    index = next(one for one in tasks.indexes if one.name == "argus_tasks_ended")
    write(bench, DropIndex(index))
    (one,) = schema.indexes(argus)
    assert (one.level, "argus_tasks_ended" in one.what) == (Level.WARNING, True)
    write(bench, sa.text(one.fix))
    assert found(argus, schema.indexes, bench)[0] is Level.OK
    assert str(CreateIndex(index).compile(dialect=bench.store.engine.dialect)).strip() == one.fix


@pytest.mark.parametrize(("version", "level"), [("0001", Level.ERROR), ("9999", Level.WARNING)])
def test_a_store_of_another_version_is_told(bench: FlowBench, argus: Argus, version: str, level: Level) -> None:
    mark_version(bench, version)
    if level is Level.ERROR and bench.store.dialect_name == "sqlite":
        level = Level.OK  # its first use brings it up to date
    assert found(argus, schema.version, bench)[0] is level


def test_a_packet_that_is_too_small_for_the_payload_is_told(bench: FlowBench, argus: Argus) -> None:
    told = list(schema.packets(argus))
    if bench.store.dialect_name != "mysql":
        assert told == []
        return
    assert [one.level for one in told] == [Level.OK]
    del argus.__dict__["settings"]
    argus._given["argus_max_payload"] = 2**30
    assert found(argus, schema.packets, bench)[0] is Level.WARNING


def test_the_clock_of_a_workers_host_is_looked_at_when_the_worker_is_seen(bench: FlowBench, argus: Argus) -> None:
    worker(bench)
    level, what = found(argus, clocks.skew, bench)
    assert (level, "the clocks of 2 hosts are within" in what) == (Level.OK, True)
    write(bench, sa.update(holders_table).values(host=socket.gethostname(), skew_ms=-3_600_000))
    level, what = found(argus, clocks.skew, bench)
    assert (level, "the clock of 1 host is within" in what) == (Level.OK, True), "this one, as it is now"
    write(bench, sa.update(holders_table).values(host="a"))
    level, what = found(argus, clocks.skew, bench)
    assert level is Level.WARNING
    assert "clock of a is 3600.0 s behind" in what
    bench.store.transaction(lambda c: holders.seen(bench.store, c, "wcelery@a"))
    assert found(argus, clocks.skew, bench)[0] is Level.OK
    bench.pass_time(60)
    level, what = found(argus, clocks.skew, bench)
    assert "this host is 60.0 s behind" in what


# --- settings against what the store holds ---------------------------------------------------------------------------


def test_a_lease_that_lapses_between_two_renewals_is_told(bench: FlowBench, argus: Argus) -> None:
    assert found(argus, conf.renewal, bench)[0] is Level.OK
    bench.enqueue(lease_ttl_ms=2_001)
    assert found(argus, conf.renewal, bench)[0] is Level.OK
    short = bench.enqueue(lease_ttl_ms=2_000)
    level, what = found(argus, conf.renewal, bench)
    assert (level, f"shop.charge[{short}]" in what) == (Level.ERROR, True)


def test_a_chord_that_outlives_the_results_of_its_header_is_told(bench: FlowBench, argus: Argus) -> None:
    project_id = open_project(bench.rt, "default")
    chords.begin(bench.rt, NewChord("c", b"body", size=2, project_id=project_id), anew=False)
    bench.pass_time(DAY - 60)
    assert found(argus, conf.expiry, bench)[0] is Level.OK
    bench.pass_time(120)
    assert found(argus, conf.expiry, bench)[0] is Level.WARNING


def test_results_that_are_to_live_longer_than_their_rows_are_told(bench: FlowBench) -> None:
    app = Celery("tests", broker="memory://", backend="argus://", set_as_current=False)
    app.conf.result_expires = 8 * DAY
    argus = Argus(app, store=bench.store.url.render_as_string(hide_password=False))
    mark_version(bench, setup.HEAD)
    level, what = found(argus, conf.expiry, bench)
    assert (level, "argus_retention" in what) == (Level.WARNING, True)
    argus.runtime.store.dispose()


# --- the work --------------------------------------------------------------------------------------------------------


def test_tasks_that_wait_while_there_is_no_worker_are_told(bench: FlowBench, argus: Argus) -> None:
    assert found(argus, work.consumers, bench)[0] is Level.OK
    bench.enqueue(queue="mail")
    level, what = found(argus, work.consumers, bench)
    assert (level, "1 task waits" in what) == (Level.WARNING, True)
    worker(bench)
    level, what = found(argus, work.consumers, bench)
    assert level is Level.UNKNOWN
    assert "mail" in what
    assert "celery@a did not answer" in what
    assert found(argus, work.names, bench)[0] is Level.UNKNOWN
    bench.pass_time(100)
    assert found(argus, work.consumers, bench)[0] is Level.WARNING


def test_a_task_that_met_only_workers_without_its_code_is_told(bench: FlowBench, argus: Argus) -> None:
    task_id = bench.enqueue(name="shop.gone")
    hand_on(bench.rt, task_id, bench.lease(task_id).token, 0)
    told = [one for one in work.names(argus) if one.level is Level.WARNING]
    assert "shop.gone met only workers that lack its code" in told[0].what


def test_work_that_is_due_and_that_nobody_sends_is_told(bench: FlowBench, argus: Argus) -> None:
    bench.enqueue(delay_ms=1_000)
    bench.pass_time(60)
    assert found(argus, work.overdue, bench)[0] is Level.OK
    bench.pass_time(60)
    assert found(argus, work.overdue, bench)[0] is Level.WARNING
    dispatch(bench.rt)
    assert found(argus, work.overdue, bench)[0] is Level.OK


def test_a_backlog_behind_a_full_window_is_nobodys_fault(bench: FlowBench) -> None:
    app = Celery("tests", broker="memory://", set_as_current=False)
    url = bench.store.url.render_as_string(hide_password=False)
    argus = Argus(app, store=url, dispatch_window=1, dispatch_ttl=DAY, dispatch_ttl_max=DAY)
    mark_version(bench, setup.HEAD)
    enqueue(argus.runtime, [new_task(), new_task()], lambda dispatches: ())
    bench.pass_time(3600)
    level, what = found(argus, work.overdue, bench)
    assert (level, "dispatch window" in what) == (Level.OK, True)
    argus.runtime.store.dispose()


def test_between_two_refills_a_window_has_room_and_nobody_is_at_fault(bench: FlowBench) -> None:
    app = Celery("tests", broker="memory://", set_as_current=False)
    url = bench.store.url.render_as_string(hide_password=False)
    argus = Argus(app, store=url, dispatch_window=4, dispatch_ttl=DAY, dispatch_ttl_max=DAY)
    mark_version(bench, setup.HEAD)
    enqueue(argus.runtime, [new_task() for _ in range(6)], lambda sent: bench.sent.extend(sent) or ())
    bench.pass_time(3600)
    for level in (Level.OK, Level.OK, Level.WARNING):
        told = bench.sent.pop()
        assert claim(bench.rt, "w1", [Delivery(told.task_id, told.token)]) != [None]
        assert found(argus, work.overdue, bench)[0] is level, len(bench.sent)
    argus.runtime.store.dispose()


def test_an_outcome_that_is_owed_for_long_is_told(bench: FlowBench, argus: Argus) -> None:
    complete(bench.rt, bench.running(), Outcome(TaskState.SUCCEEDED, b"{}", undelivered=True))
    assert found(argus, work.debts, bench)[0] is Level.OK
    bench.pass_time(3700)
    assert found(argus, work.debts, bench)[0] is Level.WARNING


def test_a_task_that_waits_for_an_event_without_end_is_named(bench: FlowBench, argus: Argus) -> None:
    claim = bench.running()
    suspend(bench.rt, claim, Wait("wait approved", "approved"))
    suspend(bench.rt, bench.running(), Wait("wait approved", "approved", delay_ms=90 * DAY * 1000))
    assert found(argus, work.endless, bench)[0] is Level.OK
    bench.pass_time(2 * DAY)
    level, what = found(argus, work.endless, bench)
    assert level is Level.WARNING
    assert f"task {claim.task_id} of default has waited for the event 'approved' for 2 d" in what


def test_what_should_have_been_pruned_is_told(bench: FlowBench, argus: Argus) -> None:
    complete(bench.rt, bench.running(), DONE)
    complete(bench.rt, bench.running(project="import"), DONE)
    close(bench.rt, "import")
    bench.pass_time(7.5 * DAY)
    assert found(argus, work.pruned, bench)[0] is Level.OK
    bench.pass_time(DAY)
    assert found(argus, work.pruned, bench)[0] is Level.WARNING
    Pruning(argus.runtime, argus.ages).run_once()
    assert found(argus, work.pruned, bench)[0] is Level.OK, "the row of the newest project stays"
    bench.history._seen.clear()


# --- the times it tells ----------------------------------------------------------------------------------------------


def test_lost_holders_and_lost_messages_are_back_within_the_times_it_tells(bench: FlowBench) -> None:
    told = {one.fault.split(":")[0]: one.seconds for one in derive(bench.rt.settings, [])}
    held = bench.running().task_id
    bench.pass_time(5)
    assert dispatch(bench.rt).lapsed == (), "its holder may live"
    bench.pass_time(told["a worker hangs, or its host dies or is cut off"] - 5)
    assert dispatch(bench.rt).lapsed == (held,)
    lost = bench.enqueue()
    bench.pass_time(told["messages are lost"])
    assert lost in dispatch(bench.rt).dispatched
    for _ in range(6):
        bench.pass_time(told["the same message is lost again and again"])
        assert lost in dispatch(bench.rt).dispatched
