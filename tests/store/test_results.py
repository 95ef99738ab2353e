"""What is read, said, kept and forgotten of results, in the statements that do it."""

from __future__ import annotations

import threading
import time

import pytest
import sqlalchemy as sa

from argus_celery.errors import LeaseLost
from argus_celery.flow.complete import complete
from argus_celery.flow.forget import forget, forget_old
from argus_celery.flow.inbox import Inbox
from argus_celery.flow.keep import keep
from argus_celery.flow.release import release
from argus_celery.flow.say import say
from argus_celery.flow.watch import Watch
from argus_celery.records import Outcome, TaskState
from argus_celery.store import ended, groups, results, revoked
from argus_celery.store.engine import Store
from argus_celery.store.schema import metadata
from tests import invariants
from tests.store.bench import Bench, counted

DONE = Outcome(TaskState.SUCCEEDED, b"{}")
DAY = 24 * 3600.0


def test_what_a_run_says_is_read_until_its_end(bench: Bench) -> None:
    claim = bench.running()
    say(bench.rt, claim, b"half")
    row = results.read(bench.store, [claim.task_id])[claim.task_id]
    assert (row.state, row.said, row.result) == (TaskState.RUNNING, b"half", None)
    complete(bench.rt, claim, DONE)
    row = results.read(bench.store, [claim.task_id])[claim.task_id]
    assert (row.state, row.said, row.result) == (TaskState.SUCCEEDED, None, b"{}")


def test_a_run_that_lost_its_lease_says_nothing(bench: Bench) -> None:
    claim = bench.running()
    release(bench.rt, claim.holder, [(claim.task_id, claim.token)], "stop")
    with pytest.raises(LeaseLost):
        say(bench.rt, claim, b"late")
    assert bench.task(claim.task_id).meta is None


def test_what_an_earlier_run_has_said_is_not_read_of_the_next(bench: Bench) -> None:
    first = bench.running()
    say(bench.rt, first, b"half")
    release(bench.rt, first.holder, [(first.task_id, first.token)], "stop")
    second = bench.claim(task_id=first.task_id)
    assert second is not None
    assert results.read(bench.store, [first.task_id])[first.task_id].said is None
    say(bench.rt, second, b"anew")
    assert results.read(bench.store, [first.task_id])[first.task_id].said == b"anew"


def test_only_what_has_ended_and_is_not_forgotten_is_read_as_ended(bench: Bench) -> None:
    alive, done, forgotten = (bench.running() for _ in range(3))
    for claim in (done, forgotten):
        complete(bench.rt, claim, DONE)
    forget(bench.rt, [forgotten.task_id])
    keep(bench.rt, "kept", "t", TaskState.RUNNING, b"{}")
    ids = [alive.task_id, done.task_id, forgotten.task_id, "kept", "unknown"]
    assert set(results.read_ended(bench.store, ids)) == {done.task_id}


def test_more_ids_than_a_statement_takes_are_read(bench: Bench) -> None:
    claim = bench.running()
    complete(bench.rt, claim, DONE)
    ids = [f"nobody-{n}" for n in range(2500)]
    assert set(results.read(bench.store, [*ids, claim.task_id])) == {claim.task_id}


def test_an_id_that_is_revoked_is_read_as_cancelled_though_no_task_has_come(bench: Bench) -> None:
    bench.store.transaction(lambda connection: revoked.put(bench.store, connection, revoked.ID, ["x"], "not wanted"))
    for read in (results.read, results.read_ended):
        assert [(row.state, row.error) for row in read(bench.store, ["x", "y"]).values()] == [
            (TaskState.CANCELLED, "not wanted")
        ]


def test_a_kept_success_stands_and_other_states_are_replaced(bench: Bench) -> None:
    keep(bench.rt, "one", "t", TaskState.RUNNING, b"started")
    invariants.check(bench.store)
    assert results.read(bench.store, ["one"])["one"].result == b"started"
    for state, document in ((TaskState.FAILED, b"failed"), (TaskState.SUCCEEDED, b"done"), (TaskState.FAILED, b"late")):
        keep(bench.rt, "one", "t", state, document)
    row = results.read(bench.store, ["one"])["one"]
    assert (row.state, row.result) == (TaskState.SUCCEEDED, b"done")
    invariants.check(bench.store)


def test_the_row_of_a_durable_task_is_not_kept_over(bench: Bench) -> None:
    claim = bench.running()
    keep(bench.rt, claim.task_id, "t", TaskState.SUCCEEDED, b"another's")
    assert results.read(bench.store, [claim.task_id])[claim.task_id].state is TaskState.RUNNING


def test_a_task_of_which_a_state_was_kept_is_recorded_when_it_comes_as_durable(bench: Bench) -> None:
    keep(bench.rt, "one", "t", TaskState.RUNNING, b"retry")
    bench.enqueue(id="one", key="k")
    assert bench.lease("one") is not None
    invariants.check(bench.store)


def test_a_forgotten_result_leaves_the_row_and_its_key(bench: Bench) -> None:
    claim = bench.running(key="k")
    complete(bench.rt, claim, DONE)
    forget(bench.rt, [claim.task_id])
    row = results.read(bench.store, [claim.task_id])[claim.task_id]
    assert (row.state, row.result) == (TaskState.SUCCEEDED, results.FORGOTTEN)
    assert bench.enqueue(key="k") == claim.task_id
    keep(bench.rt, "kept", "t", TaskState.SUCCEEDED, b"{}")
    forget(bench.rt, ["kept"])
    assert bench.task("kept") is None


def test_groups_are_saved_over_and_deleted(bench: Bench) -> None:
    groups.save(bench.store, "g", b"1")
    groups.save(bench.store, "g", b"2")
    assert groups.read(bench.store, "g") == b"2"
    groups.delete(bench.store, "g")
    assert groups.read(bench.store, "g") is None


# --- what is too old -------------------------------------------------------------------------------------------------


def _fill(bench: Bench, tag: str) -> list[str]:
    claims = [bench.running(id=f"{tag}-{n}") for n in range(2)]
    complete(bench.rt, claims[0], DONE)
    complete(bench.rt, claims[1], Outcome(TaskState.FAILED, b"{}", error="x"))
    keep(bench.rt, f"{tag}-kept", "t", TaskState.SUCCEEDED, b"{}")
    keep(bench.rt, f"{tag}-begun", "t", TaskState.RUNNING, b"{}")
    groups.save(bench.store, f"{tag}-group", b"{}")
    return [claims[0].task_id, claims[1].task_id, f"{tag}-kept", f"{tag}-begun"]


def test_results_and_groups_expire_and_durable_rows_stay(bench: Bench) -> None:
    old = _fill(bench, "old")
    bench.pass_time(DAY)
    young = _fill(bench, "young")
    alive = bench.running()
    say(bench.rt, alive, b"half")
    assert forget_old(bench.rt, DAY / 2, DAY / 2) == 5
    found = results.read(bench.store, [*old, *young, alive.task_id])
    assert {id_ for id_, row in found.items() if row.result == results.FORGOTTEN} == set(old[:2])
    assert set(found) == {*old[:2], *young, alive.task_id}
    assert found[alive.task_id].said == b"half"
    assert (groups.read(bench.store, "old-group"), groups.read(bench.store, "young-group")) == (None, b"{}")
    assert forget_old(bench.rt, DAY / 2, DAY / 2) == 0
    invariants.check(bench.store)


def test_failures_may_be_kept_for_longer_and_nothing_may_expire(bench: Bench) -> None:
    old = _fill(bench, "old")
    bench.pass_time(DAY)
    assert forget_old(bench.rt, None, None) == 0
    assert forget_old(bench.rt, DAY / 2, 2 * DAY) == 4
    found = results.read(bench.store, old)
    assert found[old[0]].result == results.FORGOTTEN
    assert found[old[1]].result == b"{}"


def test_what_expires_is_taken_in_bounded_batches(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("argus_celery.flow.forget.BATCH", 2)
    for n in range(5):
        keep(bench.rt, f"kept-{n}", "t", TaskState.SUCCEEDED, b"{}")
        groups.save(bench.store, f"g-{n}", b"{}")
    bench.pass_time(DAY)
    assert forget_old(bench.rt, 1, 1) == 10


def test_an_outcome_that_is_still_owed_does_not_expire(bench: Bench) -> None:
    claim = bench.running()
    complete(bench.rt, claim, Outcome(TaskState.SUCCEEDED, b"{}", undelivered=True))
    bench.pass_time(DAY)
    assert forget_old(bench.rt, 1, 1) == 0


# --- waiting ---------------------------------------------------------------------------------------------------------


def _wait(watch: Watch, inbox: Inbox, seconds: float = 10) -> dict[str, results.ResultRow]:
    found: dict[str, results.ResultRow] = {}
    ends = time.monotonic() + seconds
    while not found and time.monotonic() < ends:
        found = watch.wait(inbox, 0.1)
    return found


def test_an_end_is_told_to_whoever_waits_for_it(bench: Bench) -> None:
    watch, mine, others = Watch(bench.store), Inbox(), Inbox()
    claim, other = bench.running(), bench.running()
    mine.ids.add(claim.task_id)
    others.ids.add(other.task_id)
    threading.Timer(0.3, complete, (bench.rt, claim, DONE)).start()
    found = _wait(watch, mine)
    assert {id_: row.result for id_, row in found.items()} == {claim.task_id: b"{}"}
    assert watch.wait(others, 0.1) == {}


def test_who_waits_for_an_id_that_no_store_holds_keeps_nobody_else_waiting(bench: Bench) -> None:
    watch, odd, mine = Watch(bench.store), Inbox(), Inbox()
    claim = bench.running()
    complete(bench.rt, claim, DONE)
    odd.ids |= {"nul\0", "lone \ud800 surrogate", "x" * 256}
    mine.ids.add(claim.task_id)
    waiting = threading.Thread(target=_wait, args=(watch, odd, 1.0))
    waiting.start()
    assert set(_wait(watch, mine)) == {claim.task_id}
    waiting.join()


def test_an_end_before_the_wait_is_found_too(bench: Bench) -> None:
    claim, inbox = bench.running(), Inbox()
    complete(bench.rt, claim, DONE)
    inbox.ids.add(claim.task_id)
    assert set(_wait(Watch(bench.store), inbox)) == {claim.task_id}


def test_all_that_is_waited_for_is_one_statement(bench: Bench) -> None:
    watch = Watch(bench.store)
    inboxes = [Inbox() for _ in range(5)]
    claims = [bench.running() for _ in range(50)]
    for n, claim in enumerate(claims):
        inboxes[n % 5].ids.add(claim.task_id)
    threads = [threading.Thread(target=_wait, args=(watch, inbox, 1.5)) for inbox in inboxes]
    with counted(bench.store) as count:
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    # five waiting parties, 1.5 s: from 5 ms on, rarer and rarer, at least four times a second
    assert count.statements <= 60
    assert count.transactions == 0


def test_who_completes_knows_whether_somebody_waits_for_no_statement_more(bench: Bench) -> None:
    def cost() -> int:
        claim = bench.running()
        with counted(bench.store) as count:
            complete(bench.rt, claim, DONE)
        return count.statements

    cost()
    alone = cost()
    hearing = ended.hearing(bench.store)
    try:
        told = 1 if bench.store.dialect_name == "postgresql" else 0
        assert cost() == alone + told
    finally:
        hearing.close()


@pytest.mark.postgres
def test_a_listening_connection_that_is_lost_costs_a_moment_only(postgres_store_url: str) -> None:
    store = Store(postgres_store_url, app_name="tests")
    metadata.create_all(store.engine)
    bench, watch, inbox = Bench(store), Watch(store), Inbox()
    cut = sa.text(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        " WHERE datname = current_database() AND query LIKE 'LISTEN%'"
    )
    try:
        for _ in range(2):
            claim = bench.running()
            inbox.ids.add(claim.task_id)
            threading.Timer(0.3, complete, (bench.rt, claim, DONE)).start()
            assert set(_wait(watch, inbox)) == {claim.task_id}
            inbox.ids.clear()
            assert store.statement(lambda connection: connection.execute(cut).scalar_one()) == 1
    finally:
        store.dispose()
