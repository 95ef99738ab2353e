"""Chords: each part is counted once, with the completion of its task, and a full chord is settled once."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import sqlalchemy as sa

from argus_celery.errors import LeaseLost, ProjectClosed
from argus_celery.flow import abandon, chords, keep, steer
from argus_celery.flow.chords import Leading
from argus_celery.flow.complete import complete, complete_all
from argus_celery.flow.deliver import pending
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.enqueue import enqueue
from argus_celery.flow.retry import park
from argus_celery.records import ChordPart, Claim, NewChord, NewTask, Outcome, OwedChord, PartCount, TaskState
from argus_celery.store import chords as rows
from argus_celery.store import projects
from argus_celery.store.leases import PARKED
from argus_celery.store.schema import chord_parts
from argus_celery.store.schema import chords as table
from tests.flow.conftest import FlowBench
from tests.flow.faults import meanwhile
from tests.store.bench import counted, new_task


def begin(bench: FlowBench, chord_id: str = "c", size: int | None = 2, **more: object) -> None:
    chords.begin(bench.rt, NewChord(chord_id, b"body", size=size, **more), anew=False)  # type: ignore[arg-type]


def part(task_id: str, chord_id: str = "c", position: int | None = None, state: str = "SUCCESS") -> ChordPart:
    return ChordPart(chord_id, task_id, position, state, b"1")


def ended(one: Claim, chord_id: str = "c", position: int | None = None) -> Outcome:
    return Outcome(TaskState.SUCCEEDED, b"1", part=part(one.task_id, chord_id, position))


def row(bench: FlowBench, chord_id: str = "c") -> sa.Row[tuple[object, ...]]:
    query = sa.select(table).where(table.c.id == chord_id)
    return bench.store.statement(lambda connection: connection.execute(query).one())


def parts(bench: FlowBench) -> list[tuple[str, str]]:
    query = sa.select(chord_parts.c.chord_id, chord_parts.c.task_id).order_by(*chord_parts.primary_key.columns)
    return bench.store.statement(lambda connection: [tuple(one) for one in connection.execute(query)])


def owed(bench: FlowBench, chord_id: str = "c") -> OwedChord:
    chord = chords.read_owed(bench.rt, chord_id)
    assert chord is not None
    return chord


def body(project_id: int, **more: object) -> NewTask:
    return new_task(name="shop.total", project_id=project_id, inside=True, **more)


# --- counting --------------------------------------------------------------------------------------------------------


def test_the_last_part_makes_the_chord_owed_and_says_so(bench: FlowBench) -> None:
    begin(bench)
    first, last = bench.running(), bench.running()
    assert complete(bench.rt, first, ended(first, position=1)).ready == set()
    assert chords.owed(bench.rt) == []
    assert complete(bench.rt, last, ended(last, position=0)).ready == {"c"}
    assert chords.owed(bench.rt) == ["c"]
    chord = owed(bench)
    assert (chord.body, chord.project_id) == (b"body", first.project_id)
    assert [one.task_id for one in chord.parts] == [last.task_id, first.task_id]


def test_a_part_without_a_position_comes_last(bench: FlowBench) -> None:
    begin(bench)
    chords.part_returned(bench.rt, part("late"))
    chords.part_returned(bench.rt, part("first", position=0))
    assert [one.task_id for one in owed(bench).parts] == ["first", "late"]


@pytest.mark.parametrize("repeat", range(5))
def test_of_two_last_parts_at_the_same_time_one_sees_the_chord_full(bench: FlowBench, repeat: int) -> None:
    begin(bench, size=4)
    claims = [bench.running() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        written = list(pool.map(lambda one: complete(bench.rt, one, ended(one)), claims))
    assert sum("c" in one.ready for one in written) == 1
    assert (row(bench).done, row(bench).owed) == (4, 1)


def test_a_last_part_waits_for_one_that_is_not_committed_yet_and_counts_it(bench: FlowBench) -> None:
    begin(bench)
    mine = part("mine")
    answer = meanwhile(
        bench.store,
        lambda connection: rows.count(bench.store, connection, mine, None),
        lambda: chords.part_returned(bench.rt, part("other")),
    )
    assert answer is PartCount.READY


def test_the_same_part_from_two_at_the_same_time_counts_once(bench: FlowBench, other: FlowBench) -> None:
    begin(bench)
    same = part("same")
    answer = meanwhile(
        bench.store,
        lambda connection: rows.count(bench.store, connection, same, None),
        lambda: chords.part_returned(other.rt, same),
    )
    assert answer is PartCount.COUNTED
    assert row(bench).done == 1


def test_a_repeated_part_counts_once_and_tells_whether_the_chord_is_still_owed(bench: FlowBench) -> None:
    begin(bench, size=1)
    assert [chords.part_returned(bench.rt, part("a")) for _ in range(3)] == [PartCount.READY] * 3
    assert row(bench).done == 1
    assert chords.settle(bench.rt, owed(bench), bench.running().project_id, Leading())
    assert chords.part_returned(bench.rt, part("a")) is PartCount.COUNTED
    assert chords.owed(bench.rt) == []


def test_a_batch_counts_parts_of_several_chords_whatever_their_order(bench: FlowBench, other: FlowBench) -> None:
    for name in "abcd":
        begin(bench, name, size=4)
    batches = [[bench.running(f"w{n}") for _ in "abcdabcd"] for n in (1, 2)]

    def end(number: int) -> set[str]:
        order: Sequence[str] = "abcdabcd" if number == 0 else "dcbadcba"
        finished = [(one, ended(one, name)) for one, name in zip(batches[number], order, strict=True)]
        return complete_all((bench, other)[number].rt, finished).ready

    with ThreadPoolExecutor(2) as pool:
        ready = list(pool.map(end, (0, 1)))
    assert ready[0] | ready[1] == set("abcd")
    assert not ready[0] & ready[1]


def test_a_part_of_a_chord_that_the_store_does_not_know_is_left_to_the_backend_and_remembered(
    bench: FlowBench,
) -> None:
    one = bench.running()
    written = complete(bench.rt, one, ended(one))
    assert written.uncounted == {(one.task_id, one.token)}
    assert bench.task(one.task_id).undelivered > 0
    assert chords.part_returned(bench.rt, part("x")) is PartCount.UNKNOWN
    assert parts(bench) == []


def test_a_run_that_lost_its_lease_counts_no_part(bench: FlowBench) -> None:
    begin(bench)
    one = bench.running()
    bench.pass_time(7)
    dispatch(bench.rt)
    with pytest.raises(LeaseLost):
        complete(bench.rt, one, ended(one))
    assert (row(bench).done, parts(bench)) == (0, [])


def test_a_completion_whose_answer_was_lost_counts_its_part_once_and_finds_the_chord_full(bench: FlowBench) -> None:
    begin(bench, size=1)
    one = bench.running()
    bench.store.lose_answers = 1
    assert complete(bench.rt, one, ended(one)).ready == {"c"}
    assert row(bench).done == 1


def test_a_part_costs_two_statements_in_the_one_transaction_of_its_end(bench: FlowBench) -> None:
    begin(bench, size=3)
    complete(bench.rt, bench.running(), Outcome(TaskState.SUCCEEDED, b"1"))
    member = bench.running()
    with counted(bench.store) as with_part:
        complete(bench.rt, member, ended(member))
    assert with_part.transactions == 1
    # Four are those of an end. MySQL has no UPDATE … RETURNING.
    assert with_part.statements == 4 + (2 if bench.store.dialect.returning else 3)


# --- the size --------------------------------------------------------------------------------------------------------


def test_parts_that_come_before_the_header_was_sent_whole_are_counted(bench: FlowBench) -> None:
    begin(bench, size=None)
    assert chords.part_returned(bench.rt, part("a")) is PartCount.COUNTED
    assert chords.part_returned(bench.rt, part("b")) is PartCount.COUNTED
    assert chords.resize(bench.rt, "c", 2) is PartCount.READY
    assert chords.owed(bench.rt) == ["c"]
    assert chords.resize(bench.rt, "unknown", 2) is PartCount.UNKNOWN


def test_a_part_that_is_added_is_waited_for_also_before_the_size_is_known(bench: FlowBench) -> None:
    begin(bench, size=None)
    assert chords.add(bench.rt, "c")
    assert not chords.add(bench.rt, "unknown")
    chords.part_returned(bench.rt, part("a"))
    assert chords.resize(bench.rt, "c", 1) is PartCount.COUNTED
    assert chords.part_returned(bench.rt, part("added")) is PartCount.READY


def test_a_task_that_joins_a_chord_is_waited_for_once_however_often_it_is_enqueued(bench: FlowBench) -> None:
    begin(bench, size=1)
    joining = new_task(joins="c", key="k")
    for _ in range(2):
        enqueue(bench.rt, [joining])
    chords.part_returned(bench.rt, part("a"))
    assert chords.owed(bench.rt) == []
    assert chords.part_returned(bench.rt, part(joining.id)) is PartCount.READY


# --- firing ----------------------------------------------------------------------------------------------------------


def test_of_two_that_fire_one_records_the_body(bench: FlowBench, other: FlowBench) -> None:
    begin(bench, size=1)
    one = bench.running()
    complete(bench.rt, one, ended(one))
    chord, mine, rival = owed(bench), body(one.project_id), body(one.project_id)
    with ThreadPoolExecutor(2) as pool:
        fired = [
            pool.submit(chords.settle, rt, chord, one.project_id, Leading([task]))
            for rt, task in ((bench.rt, mine), (other.rt, rival))
        ]
    assert sorted(one.result() for one in fired) == [False, True]
    assert (bench.task(mine.id) is None) != (bench.task(rival.id) is None)
    assert chords.owed(bench.rt) == []


def test_a_body_of_an_ordinary_task_is_owed_until_it_was_sent_and_meanwhile_nobody_else_sends_it(
    bench: FlowBench,
) -> None:
    begin(bench, size=1)
    chords.part_returned(bench.rt, part("a"))
    assert chords.settle(bench.rt, owed(bench), 1, Leading(sends=True))
    assert chords.owed(bench.rt) == []
    bench.pass_time(31)
    assert chords.owed(bench.rt) == ["c"], "its sender is taken for dead"
    again = owed(bench)
    assert again.recorded
    assert chords.settle(bench.rt, again, 1, Leading(sends=True))
    chords.sent(bench.rt, "c")
    bench.pass_time(31)
    assert chords.owed(bench.rt) == []


def test_a_full_chord_is_seen_by_every_sweep_until_it_is_fired(bench: FlowBench) -> None:
    begin(bench, size=1)
    assert not dispatch(bench.rt).owed
    chords.part_returned(bench.rt, part("a"))
    assert dispatch(bench.rt).owed
    assert chords.settle(bench.rt, owed(bench), 1, Leading())
    assert not dispatch(bench.rt).owed


def test_a_closed_project_is_not_complete_while_a_chord_of_it_is_owed(bench: FlowBench) -> None:
    begin(bench, size=1)
    one = bench.running(project="import")
    steer.close(bench.rt, "import")
    complete(bench.rt, one, ended(one))
    assert not steer.try_complete(bench.rt, "import")
    follow = body(one.project_id)
    assert chords.settle(bench.rt, owed(bench), one.project_id, Leading([follow]))
    assert not steer.try_complete(bench.rt, "import"), "the body is alive"
    running = bench.claim("w1", follow.id)
    assert running is not None
    complete(bench.rt, running, Outcome(TaskState.SUCCEEDED))
    assert steer.try_complete(bench.rt, "import")


def test_in_a_cancelled_project_a_full_chord_leads_to_nothing(bench: FlowBench) -> None:
    begin(bench, size=1)
    one = bench.running(project="import")
    complete(bench.rt, one, ended(one))
    steer.cancel(bench.rt, "import")
    follow = body(one.project_id)
    assert not chords.settle(bench.rt, owed(bench), one.project_id, Leading([follow]))
    assert bench.task(follow.id) is None
    assert chords.owed(bench.rt) == []


def test_a_body_for_a_project_that_has_ended_is_refused_and_stays_owed(bench: FlowBench) -> None:
    project_id = steer.open_project(bench.rt, "import")
    steer.close(bench.rt, "import")
    begin(bench, size=1, project_id=project_id)
    chords.part_returned(bench.rt, part("a"))
    bench.store.transaction(lambda c: projects.finish(bench.store, c, project_id, projects.ProjectStatus.COMPLETED))
    with pytest.raises(ProjectClosed):
        chords.settle(bench.rt, owed(bench), project_id, Leading([body(project_id)]))
    assert chords.owed(bench.rt) == ["c"]


def test_a_chord_behind_a_task_is_recorded_by_its_completion(bench: FlowBench) -> None:
    one = bench.running()
    behind = NewChord("c", b"body", size=1, project_id=one.project_id)
    complete(bench.rt, one, Outcome(TaskState.SUCCEEDED, chords=(behind,)))
    assert chords.part_returned(bench.rt, part("a")) is PartCount.READY


def test_a_chord_that_is_begun_twice_stands_and_only_one_that_was_sent_begins_anew(bench: FlowBench) -> None:
    begin(bench, size=1)
    chords.part_returned(bench.rt, part("a"))
    chords.begin(bench.rt, NewChord("c", b"other", size=1), anew=True)
    assert owed(bench).body == b"body"
    assert chords.settle(bench.rt, owed(bench), 1, Leading())
    begin(bench, size=1)
    assert chords.part_returned(bench.rt, part("a")) is PartCount.COUNTED, "a run that is repeated finds it done"
    chords.begin(bench.rt, NewChord("c", b"other", size=1), anew=True)
    assert chords.part_returned(bench.rt, part("a")) is PartCount.READY
    assert owed(bench).body == b"other"


# --- taking back -----------------------------------------------------------------------------------------------------


def test_a_part_that_is_taken_back_can_be_counted_and_its_chord_fired_once_more(bench: FlowBench) -> None:
    begin(bench)
    begin(bench, "untouched", size=2)
    for name in ("a", "b"):
        chords.part_returned(bench.rt, part(name, state="FAILURE"))
    chords.part_returned(bench.rt, part("a", "untouched"))
    assert chords.settle(bench.rt, owed(bench), 1, Leading())
    taken = bench.store.transaction(lambda c: rows.take_back(bench.store, c, ["b", "unknown"]))
    assert taken == ["c"]
    assert (row(bench).done, row(bench).owed, row(bench).sent_at) == (1, 0, None)
    assert chords.part_returned(bench.rt, part("b")) is PartCount.READY
    assert [one.state for one in owed(bench).parts] == ["FAILURE", "SUCCESS"]
    assert row(bench, "untouched").done == 1


def test_a_firing_that_is_under_way_when_a_part_is_taken_back_records_nothing(bench: FlowBench) -> None:
    begin(bench, size=1)
    chords.part_returned(bench.rt, part("a"))
    chord = owed(bench)
    bench.store.transaction(lambda c: rows.take_back(bench.store, c, ["a"]))
    assert not chords.settle(bench.rt, chord, 1, Leading())


def test_what_was_abandoned_and_lives_again_takes_its_part_back(bench: FlowBench) -> None:
    begin(bench, size=1)
    one = bench.running()
    late = body(one.project_id)
    keep.keep(bench.rt, late.id, late.name, TaskState.FAILED, b"broke", abandoned=True)
    chords.part_returned(bench.rt, part(late.id, state="FAILURE"))
    complete(bench.rt, one, Outcome(TaskState.SUCCEEDED, continuations=(late,)))
    assert (row(bench).done, row(bench).owed) == (0, 0)


# --- what never comes ------------------------------------------------------------------------------------------------


def parked(bench: FlowBench, project: str = "import") -> tuple[Claim, NewTask]:
    """A task that was replaced by a chain, and the first task of that."""
    one = bench.running(project=project)
    first = new_task(name="shop.first", project_id=one.project_id, inside=True)
    park(bench.rt, one, [first])
    assert bench.lease(one.task_id).eligible_at >= PARKED
    return one, first


def test_a_replaced_task_whose_successor_never_comes_fails_and_its_project_ends(bench: FlowBench) -> None:
    one, first = parked(bench)
    steer.close(bench.rt, "import")
    running = bench.claim("w1", first.id)
    assert running is not None
    complete(bench.rt, running, Outcome(TaskState.FAILED, error="broke"))
    for _ in range(2):  # it may be told twice
        abandon.abandon(bench.rt, [one.task_id, first.id, "unknown"], "broke", b"document")
    ended = bench.task(one.task_id)
    assert (ended.outcome, ended.abandoned, ended.error, ended.result) == ("failed", 1, "broke", b"document")
    assert bench.lease(one.task_id) is None
    assert steer.try_complete(bench.rt, "import")
    assert bench.store.statement(lambda c: projects.find(c, "import")).status == "failed"


def test_a_task_that_runs_or_waits_is_not_abandoned(bench: FlowBench) -> None:
    running, waiting = bench.running(), bench.enqueue(delay_ms=60_000)
    abandon.abandon(bench.rt, [running.task_id, waiting], "broke", None)
    assert bench.lease(running.task_id) is not None
    assert bench.lease(waiting) is not None


def test_a_task_with_something_behind_it_owes_its_end_without_a_run_whatever_the_backend(bench: FlowBench) -> None:
    rt = replace(bench.rt, foreign_results=False)
    led = bench.enqueue(delay_ms=2_000, expires_in_ms=1_000, follows=True, project="import")
    bench.enqueue(delay_ms=2_000, expires_in_ms=1_000, project="import")
    steer.close(rt, "import")
    bench.pass_time(3)
    dispatch(rt)
    assert [debt.task_id for debt in pending(rt)] == [led]
    assert not steer.try_complete(rt, "import"), "what follows is not told yet"
