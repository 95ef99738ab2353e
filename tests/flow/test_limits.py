"""Limits: slots counted from live leases, lines that cost nobody else anything, starts at a pace."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from argus_celery.flow import steer
from argus_celery.flow.claim import adopt, claim
from argus_celery.flow.complete import complete, complete_many
from argus_celery.flow.configure import configure
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.enqueue import enqueue
from argus_celery.flow.lapse import lapse
from argus_celery.flow.link import add_after
from argus_celery.flow.mend import mend
from argus_celery.flow.release import release
from argus_celery.flow.restore import restore, sweep
from argus_celery.flow.retry import retry
from argus_celery.flow.revive import Knowledge, retry_failed
from argus_celery.flow.revoke import _write as end_revoked
from argus_celery.flow.revoke import revoke
from argus_celery.records import Bound, Claim, Delivery, HolderFacts, NewTask, Outcome, TaskState
from argus_celery.store import limits
from argus_celery.store.schema import lease_limits, leases
from argus_celery.store.schema import limits as limits_table
from tests.flow.conftest import FlowBench
from tests.flow.faults import meanwhile
from tests.store.bench import counted, new_task

DONE, BROKE = Outcome(TaskState.SUCCEEDED), Outcome(TaskState.FAILED, error="broke")
APP = Knowledge(lambda name: None, lambda message: ())
ONE, TWO = (Bound("one", 1),), (Bound("two", 2),)


def enqueued(bench: FlowBench, number: int, bounds: tuple[Bound, ...] = TWO, **more: Any) -> list[str]:
    return [bench.enqueue(limits=bounds, **more) for _ in range(number)]


def sent(bench: FlowBench) -> list[str]:
    """What was published since the last look."""
    ids = [one.task_id for one in bench.sent]
    bench.sent.clear()
    return ids


def take(bench: FlowBench, holder: str = "w1") -> list[Claim]:
    """Claim all that was published."""
    deliveries = [Delivery(one.task_id, one.token) for one in bench.sent]
    bench.sent.clear()
    return [one for one in claim(bench.rt, holder, deliveries) if one is not None]


def test_no_more_go_out_than_there_are_slots_and_each_end_lets_in_the_next(bench: FlowBench) -> None:
    ids = enqueued(bench, 5)
    running = take(bench)
    assert [one.task_id for one in running] == ids[:2]
    assert dispatch(bench.rt).dispatched == ()
    for at in range(3):
        complete(bench.rt, running[at], DONE)
        running += take(bench)
        assert running[-1].task_id == ids[at + 2]
    for one in running[3:]:
        complete(bench.rt, one, DONE)
    assert sent(bench) == []


@pytest.mark.parametrize("end", ["fails", "is revoked", "dies", "waits for a retry", "is released for later"])
def test_however_a_run_ends_its_slot_is_free(bench: FlowBench, end: str) -> None:
    first, second = enqueued(bench, 2, ONE, max_losses=1)
    [one] = take(bench)
    match end:
        case "fails":
            complete(bench.rt, one, BROKE)
        case "is revoked":
            revoke(bench.rt, [first])
        case "dies":
            bench.pass_time(7)
            dispatch(bench.rt)
        case "waits for a retry":
            retry(bench.rt, one, new_task(id=first, delay_ms=60_000), "later")
        case _:
            release(bench.rt, "w1", [(first, one.token)], "shutdown", 60_000)
    assert sent(bench) == [second]


def test_the_slot_of_a_dead_worker_goes_on_with_its_task(bench: FlowBench) -> None:
    first, second = enqueued(bench, 2, ONE)
    [one] = take(bench)
    lapse(bench.rt, "w1", first, one.token, "signal 9")
    assert sent(bench) == [first]
    bench.pass_time(40)  # lost in the broker, then with its next worker
    assert dispatch(bench.rt).dispatched == (first,)
    [one] = take(bench)
    bench.pass_time(7)
    assert dispatch(bench.rt).lapsed == (first,)
    [one] = take(bench)
    complete(bench.rt, one, DONE)
    assert sent(bench) == [second]


def test_a_retry_that_is_due_comes_back_into_the_line(bench: FlowBench) -> None:
    first, second = enqueued(bench, 2, ONE)
    [one] = take(bench)
    retry(bench.rt, one, new_task(id=first, delay_ms=1_000), "later")
    [other] = take(bench)
    bench.pass_time(2)
    assert dispatch(bench.rt).dispatched == ()
    complete(bench.rt, other, DONE)
    assert (other.task_id, sent(bench)) == (second, [first])


def test_the_more_urgent_go_first_and_else_who_waits_longest(bench: FlowBench) -> None:
    enqueued(bench, 1, ONE)
    ids = enqueued(bench, 2, ONE)
    urgent = bench.enqueue(limits=ONE, priority=5)
    order = []
    for _ in range(3):
        [one] = take(bench)
        complete(bench.rt, one, DONE)
        order += [one.task_id for one in bench.sent]
    assert order == [urgent, *ids]


def test_a_batch_is_let_in_as_far_as_there_is_room(bench: FlowBench) -> None:
    batch = [new_task(limits=TWO) for _ in range(4)] + [new_task()]
    assert [bool(one.token) for one in enqueue(bench.rt, batch)] == [True, True, False, False, True]


def test_what_is_scheduled_has_no_slot_before_it_is_due(bench: FlowBench) -> None:
    later = bench.enqueue(limits=ONE, delay_ms=5_000)
    first = bench.enqueue(limits=ONE)
    assert sent(bench) == [first]
    bench.pass_time(6)
    report = dispatch(bench.rt)
    assert (later in report.dispatched, report.parked) == (False, 1)
    revoke(bench.rt, [first])
    assert later in sent(bench)


def test_a_message_without_a_token_waits_in_line_like_any_other(bench: FlowBench) -> None:
    [first] = enqueued(bench, 1, ONE)
    task = new_task(limits=ONE)
    assert adopt(bench.rt, task) == 0
    sent(bench)
    revoke(bench.rt, [first])
    assert sent(bench) == [task.id]


def test_several_limits_need_a_slot_of_each_and_the_narrow_one_holds_up_nobody_else(bench: FlowBench) -> None:
    wide = Bound("wide", 2)
    first = bench.enqueue(limits=(wide, Bound("account 17", 1)))
    blocked = [bench.enqueue(limits=(wide, Bound("account 17", 1))) for _ in range(3)]
    other = bench.enqueue(limits=(wide, Bound("account 18", 1)))
    third = bench.enqueue(limits=(wide, Bound("account 19", 1)))
    running = {one.task_id: one for one in take(bench)}
    assert set(running) == {first, other}
    complete(bench.rt, running[other], DONE)
    assert sent(bench) == [third]
    complete(bench.rt, running[first], DONE)
    assert sent(bench) == [blocked[0]]


def test_who_moves_from_line_to_line_is_let_in_by_the_last(bench: FlowBench) -> None:
    """The first in the wide line needs a narrow slot; the next does not, and is not held up by it."""
    wide, narrow = Bound("wide", 1), Bound("narrow", 1)
    holding = bench.enqueue(limits=(narrow,))
    enqueued(bench, 1, (wide,))
    both = bench.enqueue(limits=(wide,))
    running = {one.task_id: one for one in take(bench)}
    put = sa.insert(lease_limits).values(task_id=both, name="narrow", state=limits.IDLE, place=0, since=1)
    bench.store.transaction(lambda c: c.execute(put))
    plain = bench.enqueue(limits=(wide,))
    [occupant] = set(running) - {holding}
    complete(bench.rt, running[occupant], DONE)
    assert sent(bench) == [plain]
    complete(bench.rt, running[holding], DONE)
    assert sent(bench) == []
    revoke(bench.rt, [plain])
    assert sent(bench) == [both]


def test_a_pause_leaves_the_slots_to_other_projects(bench: FlowBench) -> None:
    mine = enqueued(bench, 2, ONE, project="mine")
    [other] = enqueued(bench, 1, ONE, project="other")
    sent(bench)
    steer.pause(bench.rt, "mine")
    dispatch(bench.rt)
    assert sent(bench) == [other]
    assert {bench.lease(one).paused for one in mine} == {limits.BY_PAUSE}
    revoke(bench.rt, [other])
    assert sent(bench) == []
    steer.resume(bench.rt, "mine")
    dispatch(bench.rt)
    assert len(sent(bench)) == 1


@pytest.mark.parametrize("how", ["lapses", "is proven dead", "is killed", "waits in the queue"])
def test_what_is_lost_in_a_paused_project_waits_and_leaves_its_slot(bench: FlowBench, how: str) -> None:
    [mine] = enqueued(bench, 1, ONE, project="mine")
    held = [] if how == "waits in the queue" else take(bench)
    steer.pause(bench.rt, "mine")
    if not held:  # as a dispatch may have left it that ran beside the pause
        queued = {"holder": "queue", "paused": limits.BY_PAUSE, "eligible_at": bench.store.now + 3_000}
        change = sa.update(leases).where(leases.c.task_id == mine).values(**queued)
        bench.store.transaction(lambda connection: connection.execute(change))
        change = sa.update(lease_limits).where(lease_limits.c.task_id == mine).values(state=limits.ADMITTED)
        bench.store.transaction(lambda connection: connection.execute(change))
    behind = bench.enqueue(project="mine")
    [other] = enqueued(bench, 1, ONE, project="other")
    dispatch(bench.rt)
    sent(bench)
    match how:
        case "is killed":
            lapse(bench.rt, "w1", mine, held[0].token, "signal 9")
        case "is proven dead":
            me = HolderFacts("w2", "celery@h", "h", 2, "boot", "ns", "start")
            for facts in (replace(me, id="w1", pid=1), me):
                restore(bench.rt, facts, lambda one: one.id == "w1")
        case _:
            bench.pass_time(7)
    dispatch(bench.rt)
    assert sent(bench) == [other]
    row, task = bench.lease(mine), bench.task(mine)
    assert (row.holder, row.paused, task.losses) == ("", limits.BY_PAUSE, len(held))
    bench.pass_time(100)
    revoke(bench.rt, [other])
    dispatch(bench.rt)
    assert sent(bench) == []
    steer.resume(bench.rt, "mine")
    assert dispatch(bench.rt).dispatched == (mine, behind)


@pytest.mark.parametrize("how", ["cancelled", "paused and cancelled", "overdue", "paused and overdue"])
def test_a_dead_workers_run_of_a_project_that_is_over_leaves_its_slot(bench: FlowBench, how: str) -> None:
    [mine] = enqueued(bench, 1, ONE, project="mine")
    [other] = enqueued(bench, 1, ONE, project="other")
    take(bench)
    if "paused" in how:
        steer.pause(bench.rt, "mine")
    if "overdue" in how:
        configure(bench.rt, "mine", {"deadline_in": 1_000})
        bench.pass_time(2)
        sweep(bench.rt)
    else:
        steer.cancel(bench.rt, "mine")
    assert sent(bench) == []
    bench.pass_time(7)
    dispatch(bench.rt)
    assert (bench.task(mine).outcome, sent(bench)) == (TaskState.CANCELLED, [other])
    revoke(bench.rt, [other])


def test_a_resume_waits_for_whoever_takes_a_paused_task_out_of_its_line(bench: FlowBench, other: FlowBench) -> None:
    [first] = enqueued(bench, 1, ONE, project="another")
    waiting = enqueued(bench, 2, ONE, project="mine")
    sent(bench)
    steer.pause(bench.rt, "mine")
    end_first = partial(end_revoked, bench.rt, ids=[first], why="revoked")
    meanwhile(bench.store, end_first, lambda: steer.resume(other.rt, "mine"))
    assert {bench.lease(one).paused for one in waiting} == {limits.UNPARKED}
    dispatch(bench.rt)
    assert sent(bench) == waiting[:1]


def test_what_is_given_more_to_wait_for_leaves_line_and_slot(bench: FlowBench) -> None:
    parent = bench.running()
    queued, waiting, last = enqueued(bench, 3, ONE)
    bench.sent.clear()
    add_after(bench.rt, "default", waiting, [parent.task_id])
    add_after(bench.rt, "default", queued, [parent.task_id])
    [one] = take(bench)
    assert one.task_id == last
    complete(bench.rt, one, DONE)
    assert sent(bench) == []
    complete(bench.rt, parent, DONE)
    assert len(sent(bench)) == 1
    revoke(bench.rt, [queued])
    revoke(bench.rt, [waiting])


def test_what_leaves_the_line_of_a_paused_project_comes_back_with_its_resume(bench: FlowBench) -> None:
    parent = bench.running(project="other")
    first = bench.enqueue(project="mine")
    queued, waiting = enqueued(bench, 2, ONE, project="mine")
    steer.pause(bench.rt, "mine")
    assert bench.lease(waiting).paused == limits.BY_LIMIT
    add_after(bench.rt, "mine", waiting, [first])
    assert bench.lease(waiting).paused == limits.BY_PAUSE
    steer.resume(bench.rt, "mine")
    revoke(bench.rt, [queued, waiting])
    complete(bench.rt, parent, DONE)


def test_what_was_cancelled_in_the_line_makes_way(bench: FlowBench) -> None:
    enqueued(bench, 1, ONE)
    gone = enqueued(bench, 3, ONE, project="gone")
    [last] = enqueued(bench, 1, ONE)
    [one] = take(bench)
    steer.cancel(bench.rt, "gone")
    assert {bench.task(task_id).outcome for task_id in gone} == {TaskState.CANCELLED}
    complete(bench.rt, one, DONE)
    assert sent(bench) == [last]


def test_what_expires_in_the_line_ends_when_its_turn_comes(bench: FlowBench) -> None:
    enqueued(bench, 1, ONE)
    [stale] = enqueued(bench, 1, ONE, expires_in_ms=1_000)
    [last] = enqueued(bench, 1, ONE)
    [one] = take(bench)
    bench.pass_time(2)
    complete(bench.rt, one, DONE)
    assert sent(bench) == [last]
    assert dispatch(bench.rt).expired == (stale,)


def test_a_limit_that_is_raised_lets_in_at_once_and_one_that_is_lowered_stops_nobody(bench: FlowBench) -> None:
    ids = enqueued(bench, 3, ONE)
    running = take(bench)
    ids += enqueued(bench, 1, (Bound("one", 3),))
    dispatch(bench.rt)
    running += take(bench)
    assert [one.task_id for one in running] == ids[:3]
    ids += enqueued(bench, 1, ONE)
    for one in running:
        assert take(bench) == []
        complete(bench.rt, one, DONE)
    assert sent(bench) == [ids[3]]


def test_what_is_put_back_is_under_its_limits_again(bench: FlowBench) -> None:
    for _ in range(2):
        [task_id] = enqueued(bench, 1, ONE)
        bench.history.revived.add(task_id)
        [one] = take(bench)
        complete(bench.rt, one, BROKE)
    mend(bench.rt)  # forgets the limit that nobody is under
    assert _rows(bench, sa.select(limits_table.c.name)) == []
    assert len(retry_failed(bench.rt, "default", APP)) == 2
    assert len(sent(bench)) == 1


def test_a_limit_is_not_forgotten_while_a_task_comes_under_it(bench: FlowBench) -> None:
    [first] = enqueued(bench, 1, ONE)
    revoke(bench.rt, [first])

    def coming(connection: sa.Connection) -> None:
        limits.define(bench.store, connection, ONE)
        limits.enter(bench.store, connection, [{"task_id": "t", "name": "one", "state": limits.IDLE, "place": 0}])

    with bench.store.engine.begin() as connection:
        coming(connection)
        if bench.store.dialect_name != "sqlite":
            mend(bench.rt)
    mend(bench.rt)
    assert _rows(bench, sa.select(limits_table.c.name)) == [("one",)]
    bench.store.transaction(lambda c: limits.leave(c, ["t"]))


def test_of_many_that_come_at_once_no_more_are_let_in_than_there_are_slots(bench: FlowBench) -> None:
    bench.enqueue()
    sent(bench)
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: enqueue(bench.rt, [new_task(limits=TWO) for _ in range(3)]), range(6)))
    assert len(sent(bench)) == 2


def test_who_comes_while_the_last_slot_is_given_up_is_not_forgotten(bench: FlowBench) -> None:
    """It waits for the end that is under way, and sees the slot."""
    [first] = enqueued(bench, 1, ONE)
    [one] = take(bench)
    from argus_celery.flow.end import end
    from argus_celery.store import leases as rows
    from argus_celery.store.tasks import Ending

    def ending(connection: sa.Connection) -> None:
        rows.lock_held(bench.store, connection, "w1", [(first, one.token)])
        end(bench.rt, connection, [Ending(first, one.token, TaskState.CANCELLED, "gone", limited=True)])

    second = meanwhile(bench.store, ending, lambda: bench.enqueue(limits=ONE))
    assert sent(bench) == [second]


def test_who_is_locked_when_its_turn_comes_gets_its_turn_soon(bench: FlowBench) -> None:
    if bench.store.dialect_name == "sqlite":
        return  # it has one writer at a time
    enqueued(bench, 1, ONE)
    [second] = enqueued(bench, 1, ONE)
    [one] = take(bench)
    with bench.store.engine.begin() as connection:
        connection.execute(sa.update(leases).where(leases.c.task_id == second).values(dispatches=0))
        complete(bench.rt, one, DONE)
        assert sent(bench) == []
    assert dispatch(bench.rt).dispatched == (second,)


def test_a_project_is_under_a_limit_of_its_own_from_the_day_it_is_given_one(bench: FlowBench) -> None:
    ids = enqueued(bench, 2, (), project="p")
    running = take(bench)
    ids += enqueued(bench, 1, (), project="p", delay_ms=1)
    configure(bench.rt, "p", {"limit": Bound("project p", 2)})
    bench.pass_time(0.01)
    assert dispatch(bench.rt).dispatched == ()
    ids += enqueued(bench, 1, ONE, project="p")
    for number in (0, 1):
        complete(bench.rt, running[number], DONE)
    assert sent(bench) == ids[2:]
    last = enqueued(bench, 1, (), project="p")
    configure(bench.rt, "p", {"limit": None})
    assert dispatch(bench.rt).dispatched == tuple(last)


def test_the_slow_sweep_has_every_line_looked_at(bench: FlowBench) -> None:
    [first, second] = enqueued(bench, 2, ONE)
    sent(bench)
    # As a worker of an older version leaves it, which knows of no limits.
    bench.store.transaction(lambda c: c.execute(sa.delete(leases).where(leases.c.task_id == first)))
    end = sa.text("UPDATE argus_tasks SET outcome = 'succeeded', fence = 9, finished_at = 1 WHERE id = :id")
    bench.store.transaction(lambda c: c.execute(end, {"id": first}))
    assert dispatch(bench.rt).dispatched == ()
    mend(bench.rt)
    assert dispatch(bench.rt).dispatched == (second,)
    bench.store.transaction(lambda c: limits.leave(c, [first]))


# --- rates -----------------------------------------------------------------------------------------------------------


def test_starts_keep_their_pace_by_the_clock_of_the_store(bench: FlowBench) -> None:
    pace = (Bound("pace", spacing=20_000_000),)  # long beside what the test takes
    ids = enqueued(bench, 3, pace)
    assert sent(bench) == [ids[0]]
    wait = dispatch(bench.rt).next_due_ms
    assert wait is not None and 10_000 < wait <= 20_001
    for at in (1, 2):
        bench.pass_time(20.002)
        # Those before it may come again: nobody has fetched them.
        assert set(ids[at:]) & set(dispatch(bench.rt).dispatched) == {ids[at]}
        assert set(ids[at:]) & set(dispatch(bench.rt).dispatched) == set()


def test_a_burst_may_come_at_once_after_a_rest_and_is_saved_up_no_further(bench: FlowBench) -> None:
    pace = (Bound("pace", spacing=10_000_000, burst=3),)

    def starts() -> int:
        claims = take(bench)
        complete_many(bench.rt, [(one, DONE) for one in claims])
        return len(claims)

    enqueued(bench, 5, pace)
    assert starts() == 3
    bench.pass_time(10.1)
    dispatch(bench.rt)
    assert starts() == 1
    bench.pass_time(1_000)
    dispatch(bench.rt)
    enqueued(bench, 5, pace)
    assert starts() == 3


def test_who_comes_does_not_go_before_those_that_wait_for_their_start(bench: FlowBench) -> None:
    pace = (Bound("pace", spacing=5_000_000),)
    ids = enqueued(bench, 2, pace)
    assert [one.task_id for one in take(bench)] == ids[:1]
    bench.pass_time(5.1)
    ids += enqueued(bench, 1, pace)
    assert sent(bench) == []
    assert dispatch(bench.rt).dispatched == (ids[1],)


def test_a_rate_and_a_concurrency_hold_together(bench: FlowBench) -> None:
    both = (Bound("both", 1, 1_000_000),)
    ids = enqueued(bench, 2, both)
    [one] = take(bench)
    bench.pass_time(2)
    assert dispatch(bench.rt).dispatched == ()
    complete(bench.rt, one, DONE)
    assert sent(bench) == [ids[1]]


# --- cost ------------------------------------------------------------------------------------------------------------


def test_a_line_however_long_costs_the_others_nothing(bench: FlowBench) -> None:
    enqueued(bench, 1, ONE)
    costs = []
    for number in (5, 500):
        enqueue(bench.rt, [new_task(limits=ONE) for _ in range(number)])
        other = bench.enqueue(delay_ms=1)
        bench.pass_time(0.01)
        with counted(bench.store) as count:
            assert dispatch(bench.rt).dispatched == (other,)
        costs.append(count.statements)
    assert costs[0] == costs[1]


# --- a crowd ---------------------------------------------------------------------------------------------------------


def test_a_crowd_under_limits_never_holds_more_than_the_slots_and_leaves_nobody_behind(bench: FlowBench) -> None:
    rng = random.Random(4)
    kinds = [(Bound("wide", 3), Bound(f"account {n}", 1)) for n in range(3)] + [(Bound("wide", 3),)]
    tasks = [new_task(limits=rng.choice(kinds)) for _ in range(24)]
    bench.enqueue()
    take(bench)

    def produce(some: list[NewTask]) -> None:
        for task in some:
            enqueue(bench.rt, [task])

    def work(holder: str) -> None:
        for number in range(12):
            claims = take(bench, holder)
            if number % 4 == 0 and claims:
                one = claims.pop()
                lapse(bench.rt, holder, one.task_id, one.token, "signal 9")
            if claims:
                complete_many(bench.rt, [(one, DONE) for one in claims])

    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(produce, tasks[:12]), pool.submit(produce, tasks[12:])]
        jobs += [pool.submit(work, f"w{n}") for n in range(2)]
        for job in jobs:
            job.result()
    mine = leases.c.task_id.in_([task.id for task in tasks])
    for _ in range(60):
        bench.history.check()
        assert all(row.used <= 3 for row in _rows(bench, _used()))
        bench.pass_time(4)
        dispatch(bench.rt)
        claims = take(bench, "w9")
        if claims:
            complete_many(bench.rt, [(one, DONE) for one in claims])
        if not _rows(bench, sa.select(leases.c.task_id).where(mine)):
            return
    raise AssertionError("somebody was left behind")


def _used() -> sa.Select[Any]:
    held = lease_limits.join(leases, leases.c.task_id == lease_limits.c.task_id)
    query = sa.select(lease_limits.c.name, sa.func.count().label("used")).select_from(held)
    return query.where(leases.c.holder > "").group_by(lease_limits.c.name)


def _rows(bench: FlowBench, query: sa.Select[Any]) -> list[Any]:
    return bench.store.statement(lambda connection: list(connection.execute(query)))
