"""Dependencies: a task waits until what it comes after has ended, however the two race."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from argus_celery.errors import BadTask
from argus_celery.flow import deliver
from argus_celery.flow.come_back import AS_SET
from argus_celery.flow.complete import complete, complete_many
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.enqueue import enqueue, record
from argus_celery.flow.lapse import lapse
from argus_celery.flow.link import add_after
from argus_celery.flow.mend import mend
from argus_celery.flow.retry import park, retry
from argus_celery.flow.revive import retry_failed
from argus_celery.flow.revoke import revoke
from argus_celery.flow.steer import cancel, close, pause, resume
from argus_celery.records import Claim, Outcome, ProjectStatus, TaskState
from argus_celery.store import leases, reports
from argus_celery.store.schema import edges, tasks
from argus_celery.store.schema import leases as lease_rows
from tests.flow.conftest import FlowBench
from tests.flow.faults import meanwhile
from tests.invariants import check_all_ended
from tests.store.bench import counted, new_task

DONE = Outcome(TaskState.SUCCEEDED, b"done")
FAILED = Outcome(TaskState.FAILED, error="broke")


def sent(bench: FlowBench) -> list[str]:
    return [one.task_id for one in bench.sent]


def outcome(bench: FlowBench, task_id: str) -> str | None:
    found: str | None = bench.task(task_id).outcome
    return found


def run(bench: FlowBench, task_id: str, how: Outcome = DONE) -> None:
    claim = bench.claim("w1", task_id)
    assert claim is not None
    complete(bench.rt, claim, how)


def put_back(bench: FlowBench, *come_back: str) -> list[str]:
    bench.history.check()
    bench.history.revived.update(come_back)
    query = sa.select(tasks.c.id).where(tasks.c.outcome.in_(("failed", "dead", "expired")))
    bench.history.revived.update(bench.store.statement(lambda c: list(c.execute(query).scalars())))
    return retry_failed(bench.rt, "default", AS_SET)


# --- order -------------------------------------------------------------------------------------------------------


def test_a_task_waits_for_all_that_it_comes_after_and_goes_out_with_the_last_end(bench: FlowBench) -> None:
    first, second = bench.running(), bench.running()
    child = bench.enqueue(after=(first.task_id, second.task_id))
    bench.pass_time(1)
    assert bench.lease(child).waits == 2
    assert dispatch(bench.rt).dispatched == ()
    complete(bench.rt, second, DONE)
    assert child not in sent(bench)
    complete(bench.rt, first, DONE)
    assert child in sent(bench), "the end itself hands it to the queue, not the next sweep"
    run(bench, child)
    check_all_ended(bench.store)


def test_what_has_succeeded_already_is_not_waited_for(bench: FlowBench) -> None:
    ended, alive = bench.running(), bench.running()
    complete(bench.rt, ended, DONE)
    assert bench.enqueue(after=(ended.task_id,)) in sent(bench)
    assert bench.lease(bench.enqueue(after=(alive.task_id, ended.task_id))).waits == 1


def test_a_parent_may_be_named_by_its_key_and_an_id_stands_above_a_key(bench: FlowBench) -> None:
    by_key = bench.enqueue(key="order-1")
    by_id = bench.enqueue(id="order-2")
    bench.enqueue(key="order-2")
    child = bench.enqueue(after=("order-1", "order-2"))
    assert info(bench, child).waits_for == (by_key, by_id)


def test_in_one_batch_a_task_comes_after_those_before_it(bench: FlowBench) -> None:
    known = bench.enqueue(key="k")
    batch = [
        new_task(id="a"),
        new_task(id="b", key="kb", after=("a",)),
        new_task(id="again", key="k"),
        new_task(id="c", after=("kb", "a", "again")),
    ]
    enqueue(bench.rt, batch)
    assert info(bench, "c").waits_for == ("b", "a", known)
    for task_id in (known, "a", "b", "c"):
        run(bench, task_id)
    check_all_ended(bench.store)


def test_a_delay_and_a_pause_hold_beside_the_parents(bench: FlowBench) -> None:
    parent = bench.running()
    later = bench.enqueue(after=(parent.task_id,), delay_ms=60_000)
    paused = bench.enqueue(after=(parent.task_id,))
    pause(bench.rt, "default")
    complete(bench.rt, parent, DONE)
    assert {later, paused}.isdisjoint(sent(bench))
    resume(bench.rt, "default")
    assert dispatch(bench.rt).dispatched == (paused,)
    bench.pass_time(61)
    assert later in dispatch(bench.rt).dispatched


def test_what_expires_while_it_waits_ends_so_behind_its_parents(bench: FlowBench) -> None:
    parent = bench.running()
    child = bench.enqueue(after=(parent.task_id,), expires_in_ms=1_000)
    bench.pass_time(2)
    assert dispatch(bench.rt).ended == ()
    complete(bench.rt, parent, DONE)
    assert child not in sent(bench)
    assert dispatch(bench.rt).ended == (child,)
    assert outcome(bench, child) == "expired"


def test_those_that_become_due_keep_to_the_dispatch_window(bench: FlowBench) -> None:
    object.__setattr__(bench.rt.settings, "dispatch_window", 3)
    parent = bench.running()
    children = [bench.enqueue(after=(parent.task_id,)) for _ in range(5)]
    bench.rt.window.forget()
    complete(bench.rt, parent, DONE)
    assert len(set(children) & set(sent(bench))) == 3
    assert [bench.lease(child).waits for child in children] == [0] * 5


def test_a_retried_or_replaced_parent_has_not_ended(bench: FlowBench) -> None:
    parent = bench.running()
    child = bench.enqueue(after=(parent.task_id,))
    retry(bench.rt, parent, new_task(id=parent.task_id))
    again = bench.claim("w1", parent.task_id)
    assert again is not None
    park(bench.rt, again, [new_task(project_id=parent.project_id, inside=True)])
    assert bench.lease(child).waits == 1
    enqueue(bench.rt, [new_task(id=parent.task_id, takes_over=True)])
    run(bench, parent.task_id)
    assert child in sent(bench)


def test_more_children_than_one_transaction_takes_are_all_let_go(bench: FlowBench, monkeypatch: Any) -> None:
    monkeypatch.setattr("argus_celery.flow.wake.CHILDREN", 2)
    parent = bench.running()
    children = [bench.enqueue(after=(parent.task_id,)) for _ in range(5)]
    complete(bench.rt, parent, DONE)
    assert set(children) <= set(sent(bench))


# --- a parent that fails -----------------------------------------------------------------------------------------


def failing(bench: FlowBench, claim: Claim) -> None:
    complete(bench.rt, claim, FAILED)


def dying(bench: FlowBench, claim: Claim) -> None:
    assert lapse(bench.rt, "w1", claim.task_id, claim.token, "signal 9") is TaskState.DEAD


def revoked(bench: FlowBench, claim: Claim) -> None:
    revoke(bench.rt, [claim.task_id])


ENDS = [failing, dying, revoked]


@pytest.mark.parametrize("end", ENDS)
def test_what_comes_after_a_failure_is_abandoned_and_what_comes_after_that(
    bench: FlowBench, end: Callable[[FlowBench, Claim], None]
) -> None:
    parent = bench.running(max_losses=1)
    child = bench.enqueue(after=(parent.task_id,))
    grandchild = bench.enqueue(after=(child,))
    end(bench, parent)
    assert [outcome(bench, one) for one in (child, grandchild)] == ["failed", "failed"]
    assert bench.task(child).error == f"it comes after {parent.task_id}, which ended {outcome(bench, parent.task_id)}"
    assert {child, grandchild}.isdisjoint(sent(bench))
    check_all_ended(bench.store)


@pytest.mark.parametrize("end", ENDS)
def test_a_task_that_runs_regardless_waits_for_the_failure_and_runs(
    bench: FlowBench, end: Callable[[FlowBench, Claim], None]
) -> None:
    parent = bench.running(max_losses=1)
    child = bench.enqueue(after=(parent.task_id,), regardless=True)
    assert child not in sent(bench)
    end(bench, parent)
    run(bench, child)


def test_a_parent_that_has_expired_has_failed(bench: FlowBench) -> None:
    parent = bench.enqueue(delay_ms=2_000, expires_in_ms=1_000)
    child = bench.enqueue(after=(parent,))
    bench.pass_time(3)
    dispatch(bench.rt)
    assert (outcome(bench, parent), outcome(bench, child)) == ("expired", "failed")


def test_what_is_enqueued_after_a_failure_is_abandoned_at_once_or_runs(bench: FlowBench) -> None:
    parent = bench.running()
    complete(bench.rt, parent, FAILED)
    enqueue(bench.rt, [new_task(id="a", after=(parent.task_id,)), new_task(id="b", after=("a",))])
    assert [outcome(bench, one) for one in "ab"] == ["failed", "failed"]
    assert bench.enqueue(after=(parent.task_id,), regardless=True) in sent(bench)


def test_an_abandoned_task_still_owes_its_chain_the_news(bench: FlowBench) -> None:
    parent = bench.running()
    child = bench.enqueue(after=(parent.task_id,), follows=True)
    complete(bench.rt, parent, FAILED)
    (debt,) = deliver.pending(bench.rt, grace_ms=10_000)
    assert (debt.task_id, debt.state) == (child, TaskState.FAILED)
    assert deliver.done(bench.rt, debt.task_id, debt.token)


def test_a_retried_parent_brings_back_what_was_abandoned_behind_it(bench: FlowBench) -> None:
    parent, other = bench.running(), bench.running()
    child = bench.enqueue(after=(parent.task_id, other.task_id))
    grandchild = bench.enqueue(after=(child,))
    close(bench.rt, "default")
    complete(bench.rt, parent, FAILED)
    assert put_back(bench, child, grandchild) == [parent.task_id], "it names what failed by itself"
    assert [bench.lease(one).waits for one in (child, grandchild)] == [2, 1]
    run(bench, parent.task_id)
    complete(bench.rt, other, DONE)
    run(bench, child)
    run(bench, grandchild)
    close(bench.rt, "default")
    assert reports.project_info(bench.store, "default").status is ProjectStatus.COMPLETED  # type: ignore[union-attr]
    check_all_ended(bench.store, bench.history.revived)


def test_what_comes_after_another_failure_too_stays_abandoned_until_that_is_retried(bench: FlowBench) -> None:
    first, second = bench.running(), bench.running()
    child = bench.enqueue(after=(first.task_id, second.task_id))
    grandchild = bench.enqueue(after=(child,))
    complete_many(bench.rt, [(first, FAILED), (second, DONE)])
    revoke(bench.rt, [second.task_id])
    extra = bench.running()
    complete(bench.rt, extra, FAILED)
    enqueue(bench.rt, [new_task(id="both", after=(first.task_id, extra.task_id))])
    put_back(bench, child, grandchild, "both")
    assert {child, grandchild, "both"} <= {row.task_id for row in rows(bench, lease_rows)}
    run(bench, first.task_id, FAILED)
    assert [outcome(bench, one) for one in (child, grandchild, "both")] == ["failed"] * 3
    run(bench, extra.task_id)
    put_back(bench, child, grandchild, "both")
    assert bench.lease("both").waits == 1


def test_what_comes_after_a_revoked_task_stays_abandoned(bench: FlowBench) -> None:
    failed, dropped = bench.running(), bench.running()
    child = bench.enqueue(after=(failed.task_id, dropped.task_id))
    complete(bench.rt, failed, FAILED)
    revoke(bench.rt, [dropped.task_id])
    assert put_back(bench) == [failed.task_id]
    assert outcome(bench, child) == "failed"


def test_a_cancelled_project_cancels_what_waits_and_abandons_nothing(bench: FlowBench, monkeypatch: Any) -> None:
    monkeypatch.setattr("argus_celery.flow.steer.BATCH", 1)
    parent, running = bench.enqueue(id="a"), bench.running(id="z")
    children = [bench.enqueue(id="b", after=("a",)), bench.enqueue(id="c", after=("z", "b"))]
    cancel(bench.rt, "default")
    complete(bench.rt, running, FAILED)
    assert [outcome(bench, one) for one in (parent, *children)] == ["cancelled"] * 3


def test_a_cancel_that_died_half_way_leaves_nothing_waiting(bench: FlowBench, monkeypatch: Any) -> None:
    parent = bench.running()
    child = bench.enqueue(after=(parent.task_id,))
    monkeypatch.setattr("argus_celery.flow.steer._end_all", lambda *given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cancel(bench.rt, "default")
    assert dispatch(bench.rt).ended == (child,)
    assert outcome(bench, child) == "cancelled"
    revoke(bench.rt, [parent.task_id])


# --- races and mending -------------------------------------------------------------------------------------------


def info(bench: FlowBench, task_id: str) -> Any:
    found = reports.task_info(bench.store, task_id)
    assert found is not None
    return found


def rows(bench: FlowBench, table: sa.Table) -> list[Any]:
    return bench.store.statement(lambda connection: list(connection.execute(sa.select(table))))


@pytest.mark.parametrize("how", [DONE, FAILED])
def test_an_enqueue_that_meets_the_end_of_its_parent_loses_no_wake_up(bench: FlowBench, how: Outcome) -> None:
    """The end is under way when the child looks; and the child is being recorded when the end comes."""
    parent = bench.running()

    def ending(connection: sa.Connection) -> None:
        leases.lock_held(bench.store, connection, "w1", [(parent.task_id, parent.token)])
        from argus_celery.flow.complete import _write

        _write(bench.rt, connection, [(parent, how)])

    child = meanwhile(bench.store, ending, lambda: bench.enqueue(after=(parent.task_id,)))
    assert (child in sent(bench)) == (how is DONE)
    assert outcome(bench, child) == (None if how is DONE else "failed")


@pytest.mark.parametrize("how", [DONE, FAILED])
def test_an_end_that_meets_the_enqueue_of_a_child_loses_no_wake_up(bench: FlowBench, how: Outcome) -> None:
    parent = bench.running()
    child = new_task(project_id=parent.project_id, after=(parent.task_id,))

    def recording(connection: sa.Connection) -> None:
        record(bench.rt, connection, [child])

    meanwhile(bench.store, recording, lambda: complete(bench.rt, parent, how))
    assert (child.id in sent(bench)) == (how is DONE)
    assert outcome(bench, child.id) == (None if how is DONE else "failed")


def test_what_a_lost_answer_kept_from_being_told_is_found_by_the_slow_sweep(bench: FlowBench) -> None:
    parent = bench.running()
    child = bench.enqueue(after=(parent.task_id,))
    grandchild = bench.enqueue(after=(child,))
    bench.store.lose_answers = 1
    complete(bench.rt, parent, FAILED)
    assert outcome(bench, child) == "failed", "the transaction that ended the parent was committed"
    mend(bench.rt)
    assert outcome(bench, grandchild) == "failed"


def test_two_parents_that_end_at_once_both_count(bench: FlowBench) -> None:
    first, second = bench.running(), bench.running("w2")
    child = bench.enqueue(after=(first.task_id, second.task_id))
    from argus_celery.flow.complete import _write

    def ending(connection: sa.Connection) -> None:
        _write(bench.rt, connection, [(first, DONE)])

    meanwhile(bench.store, ending, lambda: complete(bench.rt, second, DONE))
    assert bench.lease(child).waits == 0
    assert child in sent(bench)


def test_children_that_a_crash_kept_from_being_told_are_found_by_the_slow_sweep(
    bench: FlowBench, monkeypatch: Any
) -> None:
    good, bad = bench.running(), bench.running()
    child = bench.enqueue(after=(good.task_id,))
    abandoned = bench.enqueue(after=(good.task_id, bad.task_id))
    below = bench.enqueue(after=(abandoned,))
    with monkeypatch.context() as crash:
        crash.setattr(
            "argus_celery.flow.end.wake_after", lambda *given: __import__("argus_celery").flow.wake.Released()
        )
        complete_many(bench.rt, [(good, DONE), (bad, FAILED)])
    assert mend(bench.rt) == 2
    assert child in sent(bench)
    assert [outcome(bench, one) for one in (abandoned, below)] == ["failed", "failed"]
    assert mend(bench.rt) == 0


@pytest.mark.parametrize("wrong", [1, 5])
def test_a_wrong_count_is_derived_anew(bench: FlowBench, wrong: int) -> None:
    parents = [bench.running(), bench.running()]
    child = bench.enqueue(after=[one.task_id for one in parents])
    alone = bench.enqueue(delay_ms=1)
    say = sa.update(lease_rows).where(lease_rows.c.task_id.in_((child, alone))).values(waits=wrong)
    bench.store.transaction(lambda connection: connection.execute(say))
    assert mend(bench.rt) == 2
    assert (bench.lease(child).waits, bench.lease(alone).waits) == (2, 0)
    assert mend(bench.rt) == 0


def test_a_task_without_others_costs_no_statement_for_them(bench: FlowBench) -> None:
    """Exact, for whoever adds one: a plain end on PostgreSQL is one statement."""
    complete(bench.rt, bench.running(), DONE)
    claim = bench.running()
    with counted(bench.store) as enqueued:
        bench.enqueue()
    with counted(bench.store) as ended:
        complete(bench.rt, claim, DONE)
    assert (enqueued.statements, ended.statements) == {
        "postgresql": (3, 1),
        "mysql": (4, 4),
        "sqlite": (3, 4),
    }[bench.store.dialect_name]


# --- refused -----------------------------------------------------------------------------------------------------


def refused(bench: FlowBench, call: Callable[[], object], match: str) -> None:
    before = [rows(bench, table) for table in (tasks, lease_rows, edges)]
    with pytest.raises(BadTask, match=match):
        call()
    assert [rows(bench, table) for table in (tasks, lease_rows, edges)] == before


def test_an_unknown_parent_and_one_of_another_project_are_refused(bench: FlowBench) -> None:
    elsewhere = bench.enqueue(project="other", key="there")
    bench.enqueue()
    for named in ("nobody", elsewhere, "there"):
        match = rf"shop.charge\[child\] is to come after '{named}', but its project has no durable task"
        refused(bench, lambda named=named: bench.enqueue(id="child", after=(named,)), match)  # type: ignore[misc]


def test_itself_and_a_circle_within_a_batch_and_a_parent_behind_are_refused(bench: FlowBench) -> None:
    bench.enqueue()
    refused(bench, lambda: bench.enqueue(id="a", after=("a",)), r"shop.charge\[a\] cannot come after itself")
    circle = [new_task(id="a", after=("b",)), new_task(id="b", after=("c",)), new_task(id="c", after=("a",))]
    refused(bench, lambda: enqueue(bench.rt, circle), "wait for each other for ever: a after b after c after a")
    behind = [new_task(id="a", after=("b",)), new_task(id="b")]
    refused(bench, lambda: enqueue(bench.rt, behind), "'b', which stands behind it: put parents first")
    refused(bench, lambda: bench.enqueue(after=("x" * 300,)), "is to come after")


# --- more to wait for ----------------------------------------------------------------------------------------------


def test_a_task_that_waits_is_given_more_to_wait_for(bench: FlowBench) -> None:
    parent, scheduled, queued = bench.running(), bench.enqueue(delay_ms=2_000), bench.enqueue(key="q")
    add_after(bench.rt, "default", scheduled, [parent.task_id, "q"])
    add_after(bench.rt, "default", "q", [parent.task_id, parent.task_id])
    assert bench.claim("w2", queued) is None, "the message in the broker is refused"
    assert info(bench, scheduled).waits_for == (parent.task_id, queued)
    bench.pass_time(3)
    assert scheduled not in dispatch(bench.rt).dispatched
    complete(bench.rt, parent, DONE)
    run(bench, queued)
    run(bench, scheduled)


def test_given_a_parent_twice_or_one_that_has_succeeded_nothing_changes(bench: FlowBench) -> None:
    parent, ended = bench.running(), bench.running()
    complete(bench.rt, ended, DONE)
    child = bench.enqueue(after=(parent.task_id,))
    add_after(bench.rt, "default", child, [parent.task_id, ended.task_id])
    assert bench.lease(child).waits == 1
    queued = bench.enqueue()
    add_after(bench.rt, "default", queued, [ended.task_id])
    run(bench, queued)


def test_given_a_parent_that_has_failed_it_is_abandoned_or_goes_on(bench: FlowBench) -> None:
    failed = bench.running()
    complete(bench.rt, failed, FAILED)
    child, regardless = bench.enqueue(), bench.enqueue()
    add_after(bench.rt, "default", child, [failed.task_id])
    add_after(bench.rt, "default", regardless, [failed.task_id], regardless=True)
    assert outcome(bench, child) == "failed"
    run(bench, regardless)


def test_a_circle_by_a_later_edge_is_refused_by_name(bench: FlowBench) -> None:
    parent = bench.running(id="p")
    for task_id, after in (("a", "p"), ("b", "a"), ("c", "b")):
        bench.enqueue(id=task_id, after=(after,))
    add = lambda child, *parents: lambda: add_after(bench.rt, "default", child, parents)  # noqa: E731
    refused(bench, add("a", "p", "c"), "wait for each other for ever: a after c after b after a")
    refused(bench, add("a", "a"), "task a cannot come after itself")
    refused(bench, add("a", "nobody"), "task a is to come after 'nobody'")
    refused(bench, add("p", "a"), "task p has begun: only one that waits")
    complete(bench.rt, parent, DONE)
    refused(bench, add("p", "a"), "task p has ended: only one that waits")
    with pytest.raises(LookupError, match="project 'default' has no task 'nobody'"):
        add("nobody", "a")()


def test_what_a_failed_parent_means_to_a_task_is_said_once(bench: FlowBench) -> None:
    bench.running(id="p")
    bench.enqueue(id="strict", after=("p",))
    bench.enqueue(id="lax", after=("p",), regardless=True)
    for child, stands in (("strict", False), ("lax", True)):
        add_after(bench.rt, "default", child, ["p"], regardless=stands)
        again = lambda child=child, stands=stands: add_after(bench.rt, "default", child, ["p"], regardless=not stands)  # noqa: E731
        refused(bench, again, f"task {child} comes after p already, with if_failed='{'run' if stands else 'abandon'}'")


def test_names_that_no_store_can_hold_are_no_tasks(bench: FlowBench) -> None:
    bench.enqueue(id="a")
    for name in ("\0", "\ud800", "x" * 300):
        refused(bench, lambda name=name: add_after(bench.rt, "default", "a", [name]), "is to come after")  # type: ignore[misc]
    for named in ("\0", "\ud800", None, 5):
        with pytest.raises(LookupError, match="project 'default' has no task"):
            add_after(bench.rt, "default", named, ["a"])  # type: ignore[arg-type]


def test_of_two_that_link_each_others_tasks_at_once_one_is_refused(bench: FlowBench, other: FlowBench) -> None:
    from argus_celery.flow.link import _write
    from argus_celery.store import projects

    bench.enqueue(id="a", delay_ms=1)
    bench.enqueue(id="b", delay_ms=1)

    def linking(connection: sa.Connection) -> None:
        project = projects.exclusive(bench.store, connection, bench.lease("a").project_id)
        assert project is not None
        _write(bench.rt, connection, project, "a", ["b"], False)

    with pytest.raises(BadTask, match="b after a after b"):
        meanwhile(bench.store, linking, lambda: add_after(other.rt, "default", "b", ["a"]))
