"""What has ended goes when its time is over, piece by piece, and what is needed yet stays."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from argus_celery.flow import chords
from argus_celery.flow.chords import Leading
from argus_celery.flow.complete import complete
from argus_celery.flow.enqueue import enqueue
from argus_celery.flow.keep import keep
from argus_celery.flow.prune import INTERVAL, PAUSE, Pruned, Pruning, foresee
from argus_celery.flow.restore import nodes
from argus_celery.flow.revoke import revoke, revoke_stamps
from argus_celery.flow.steer import cancel, close, open_project
from argus_celery.hooks.errands import Errands
from argus_celery.hooks.loop import Loop
from argus_celery.records import ChordPart, HolderFacts, NewChord, Outcome, TaskState
from argus_celery.store import groups, holders, revoked
from argus_celery.store import projects as store_projects
from argus_celery.store.pruning import Ages
from argus_celery.store.schema import attempts, chord_parts, edges, projects, steps, tasks
from tests.flow.conftest import FlowBench
from tests.flow.faults import meanwhile
from tests.store.bench import new_task

DONE = Outcome(TaskState.SUCCEEDED, b"{}")
FAILED = Outcome(TaskState.FAILED, error="broke")
DAY = 24 * 3600
AGES = Ages(DAY * 1000, DAY * 1000)
NOTHING = Pruned()


def prune(bench: FlowBench, ages: Ages = AGES) -> Pruned:
    """Forget in the history what is gone, for a task of the same id begins anew."""
    bench.history.check()
    gone = Pruning(bench.rt, lambda: ages).run_once()
    left = ids(bench)
    bench.history._seen = {id_: seen for id_, seen in bench.history._seen.items() if id_ in left}
    bench.history._granted = {key: by for key, by in bench.history._granted.items() if key[0] in left}
    assert Pruning(bench.rt, lambda: ages).run_once() == NOTHING, "a second pass finds nothing"
    return gone


def done(bench: FlowBench, outcome: Outcome = DONE, **more: Any) -> str:
    claim = bench.running(**more)
    complete(bench.rt, claim, outcome)
    return claim.task_id


def ids(bench: FlowBench) -> set[str]:
    return set(bench.store.statement(lambda c: c.execute(sa.select(tasks.c.id)).scalars().all()))


def names(bench: FlowBench) -> set[str]:
    return set(bench.store.statement(lambda c: c.execute(sa.select(projects.c.name)).scalars().all()))


def write(bench: FlowBench, statement: Any) -> None:
    bench.store.transaction(lambda connection: connection.execute(statement))


def count(bench: FlowBench, table: sa.Table) -> int:
    return int(bench.store.statement(lambda c: c.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()))


# --- tasks of an open project ----------------------------------------------------------------------------------------


def test_a_task_of_an_open_project_goes_by_its_own_age_with_all_that_hangs_on_it(bench: FlowBench) -> None:
    old = done(bench)
    done(bench, after=(old,))
    write(bench, sa.insert(steps).values(task_id=old, name="fetch", value=b"1", token=2, finished_at=0))
    assert count(bench, edges) == 1
    bench.pass_time(DAY - 60)
    young, alive = done(bench), bench.enqueue()
    assert prune(bench) == NOTHING
    bench.pass_time(120)
    assert foresee(bench.rt, AGES) == Pruned(tasks=2)
    assert prune(bench) == Pruned(tasks=2)
    assert ids(bench) == {young, alive}
    assert (count(bench, steps), count(bench, edges), count(bench, attempts)) == (0, 0, 1)
    assert names(bench) == {"default"}


def test_a_key_that_is_used_again_begins_with_nothing(bench: FlowBench) -> None:
    old = done(bench, id="import-1", key="order-1")
    write(bench, sa.insert(steps).values(task_id=old, name="fetch", value=b"1", token=2, finished_at=0))
    assert enqueue(bench.rt, [new_task(id="import-1", key="order-1")])[0].created is False
    bench.pass_time(2 * DAY)
    prune(bench)
    again = enqueue(bench.rt, [new_task(id="import-1", key="order-1")])[0]
    assert (again.task_id, again.created) == ("import-1", True)
    assert (count(bench, steps), bench.task("import-1").attempts) == (0, 0)


@pytest.mark.parametrize("status", ["open", "ended"])
def test_a_task_that_owes_its_outcome_stays(bench: FlowBench, status: str) -> None:
    open_project(bench.rt, "work")
    owing = done(bench, Outcome(TaskState.SUCCEEDED, b"{}", undelivered=True), project="work")
    if status == "ended":
        close(bench.rt, "work")
    open_project(bench.rt, "newer")
    bench.pass_time(2 * DAY)
    assert prune(bench) == NOTHING
    assert foresee(bench.rt, AGES).tasks == 0
    write(bench, sa.update(tasks).where(tasks.c.id == owing).values(undelivered=0))
    assert prune(bench) == Pruned(tasks=1, projects=int(status == "ended"))


def test_a_task_after_which_a_live_one_comes_stays_until_that_has_ended(bench: FlowBench) -> None:
    parent = done(bench)
    child = bench.enqueue(delay_ms=3 * DAY * 1000, after=(parent,))
    assert count(bench, edges) == 1
    bench.pass_time(2 * DAY)
    assert prune(bench) == NOTHING
    revoke(bench.rt, [child])
    assert prune(bench) == Pruned(tasks=1)
    assert ids(bench) == {child}


def test_results_of_ordinary_tasks_and_saved_groups_have_an_age_of_their_own(bench: FlowBench) -> None:
    keep(bench.rt, "ordinary", "t", TaskState.SUCCEEDED, b"{}")
    keep(bench.rt, "begun", "t", TaskState.RUNNING, b"{}")
    groups.save(bench.store, "g", b"{}")
    bench.pass_time(2 * DAY)
    assert prune(bench, Ages(DAY * 1000, None)) == NOTHING
    assert prune(bench, Ages(DAY * 1000, 3 * DAY * 1000)) == NOTHING
    assert prune(bench) == Pruned(tasks=1, groups=1)
    assert ids(bench) == {"begun"}, "it has not ended"


# --- projects --------------------------------------------------------------------------------------------------------


def test_an_ended_project_goes_whole_counted_from_its_end(bench: FlowBench) -> None:
    first = done(bench, project="import")
    bench.pass_time(2 * DAY)
    second = done(bench, FAILED, project="import")
    close(bench.rt, "import")
    open_project(bench.rt, "newer")
    bench.pass_time(DAY - 60)
    assert prune(bench) == NOTHING
    assert ids(bench) == {first, second}
    bench.pass_time(120)
    assert foresee(bench.rt, AGES) == Pruned(projects=1, tasks=2)
    assert prune(bench) == Pruned(projects=1, tasks=2)
    assert names(bench) == {"newer"}


def test_a_closed_project_that_is_not_done_keeps_everything(bench: FlowBench) -> None:
    failed = done(bench, FAILED, project="import")
    running = bench.running(project="import")
    close(bench.rt, "import")
    bench.pass_time(2 * DAY)
    assert prune(bench) == NOTHING
    assert ids(bench) == {failed, running.task_id}


def test_a_cancelled_project_keeps_what_still_runs(bench: FlowBench) -> None:
    done(bench, project="import")
    running = bench.running(project="import")
    cancel(bench.rt, "import")
    open_project(bench.rt, "newer")
    bench.pass_time(2 * DAY)
    assert prune(bench) == Pruned(tasks=1)
    assert (ids(bench), names(bench)) == ({running.task_id}, {"import", "newer"})


def test_the_newest_projects_row_stays_so_that_its_id_is_not_given_again(bench: FlowBench) -> None:
    done(bench, project="import")
    close(bench.rt, "import")
    bench.pass_time(2 * DAY)
    assert prune(bench) == Pruned(tasks=1)
    assert names(bench) == {"import"}
    open_project(bench.rt, "newer")
    assert prune(bench) == Pruned(projects=1)


def test_a_process_that_remembers_a_pruned_project_makes_it_anew(bench: FlowBench, other: FlowBench) -> None:
    done(other, project="import")
    close(bench.rt, "import")
    open_project(bench.rt, "newer")
    bench.pass_time(2 * DAY)
    prune(bench)
    new = other.enqueue(project="import")
    assert names(bench) == {"import", "newer"}
    assert bench.task(new).project_id == open_project(other.rt, "import")


def test_what_is_put_back_while_its_project_is_to_be_pruned_stays(bench: FlowBench) -> None:
    failed = done(bench, FAILED, project="import")
    close(bench.rt, "import")
    project_id = open_project(bench.rt, "import")
    open_project(bench.rt, "newer")
    bench.pass_time(2 * DAY)

    def putting_back(connection: sa.Connection) -> None:
        store_projects.exclusive(bench.store, connection, project_id)
        store_projects.go_on(connection, project_id)

    assert meanwhile(bench.store, putting_back, Pruning(bench.rt, lambda: AGES).run_once) == NOTHING
    assert (ids(bench), names(bench)) == ({failed}, {"import", "newer"})


# --- chords, revocations, holders ------------------------------------------------------------------------------------


def fire(bench: FlowBench, chord_id: str) -> None:
    chord = chords.read_owed(bench.rt, chord_id)
    assert chord is not None
    assert chords.settle(bench.rt, chord, 1, Leading())


def test_a_chord_goes_when_it_was_sent_and_nothing_of_its_header_is_left(bench: FlowBench) -> None:
    open_project(bench.rt, "default")
    chords.begin(bench.rt, NewChord("c", b"body", size=2, project_id=1), anew=False)
    header = done(bench, Outcome(TaskState.SUCCEEDED, b"{}", part=ChordPart("c", "a", 0, "SUCCESS", b"1")), id="a")
    bench.pass_time(2 * DAY)
    assert prune(bench) == NOTHING, "the chord may fail, and its header be put back"
    chords.part_returned(bench.rt, ChordPart("c", "b", 1, "SUCCESS", b"2"))
    assert prune(bench) == NOTHING, "it is owed its body"
    assert ids(bench) == {header}
    fire(bench, "c")
    assert prune(bench) == Pruned(tasks=1)
    assert chords.is_known(bench.rt, "c")
    bench.pass_time(2 * DAY)
    assert prune(bench) == Pruned(chords=3), "two parts and the chord"
    assert (chords.is_known(bench.rt, "c"), count(bench, chord_parts)) == (False, 0)


def test_a_chord_whose_header_was_never_sent_whole_goes(bench: FlowBench) -> None:
    open_project(bench.rt, "default")
    chords.begin(bench.rt, NewChord("c", b"body", project_id=1), anew=False)
    bench.pass_time(2 * DAY)
    assert prune(bench) == Pruned(chords=1)


def test_the_chords_of_an_ended_project_go_with_it(bench: FlowBench) -> None:
    project_id = open_project(bench.rt, "import")
    chords.begin(bench.rt, NewChord("c", b"body", size=2, project_id=project_id), anew=False)
    chords.part_returned(bench.rt, ChordPart("c", "a", 0, "SUCCESS", b"1"))
    cancel(bench.rt, "import")
    open_project(bench.rt, "newer")
    bench.pass_time(2 * DAY)
    assert prune(bench) == Pruned(projects=1, chords=2)


def stamps(bench: FlowBench) -> list[tuple[str, str]]:
    return bench.store.statement(revoked.stamps)


def test_a_revoked_id_for_which_no_task_came_is_forgotten(bench: FlowBench) -> None:
    revoke(bench.rt, ["later"])
    bench.pass_time(DAY - 60)
    assert prune(bench) == NOTHING
    bench.pass_time(120)
    assert prune(bench) == Pruned(revocations=1)


def test_a_revoked_stamp_outlives_its_time_while_a_task_lives_that_may_bear_it(bench: FlowBench) -> None:
    revoke_stamps(bench.rt, {"tenant": ["7"]})
    bench.pass_time(DAY - 60)
    claim = bench.running()
    bench.pass_time(120)
    bench.enqueue(delay_ms=DAY * 1000)
    assert prune(bench) == NOTHING
    complete(bench.rt, claim, DONE)
    assert prune(bench) == Pruned(revocations=1), "the task that lives yet came later"
    assert stamps(bench) == []


def test_a_worker_is_forgotten_when_what_it_ran_is(bench: FlowBench) -> None:
    me = HolderFacts("w1", "celery@a", "host", 1, "boot", "ns", "start")
    bench.store.transaction(lambda c: holders.register(bench.store, c, me))
    done(bench)
    bench.pass_time(2 * DAY)
    prune(bench, Ages(3 * DAY * 1000, None))
    assert nodes(bench.rt, ["w1"]) == {"w1": "celery@a"}
    prune(bench)
    assert nodes(bench.rt, ["w1"]) == {}


# --- a bounded piece at a time ---------------------------------------------------------------------------------------


def test_a_pass_may_be_interrupted_between_any_two_transactions(
    bench: FlowBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("argus_celery.flow.prune.BATCH", 2)
    for n in range(3):
        done(bench, project=f"import {n % 2}")
    for n in range(2):
        close(bench.rt, f"import {n}")
    owing = done(bench, Outcome(TaskState.SUCCEEDED, b"{}", undelivered=True))
    for n in range(4):
        done(bench, id=f"t{n}")
    bench.pass_time(2 * DAY)
    going = Pruning(bench.rt, lambda: AGES)
    pieces = []
    while going.under_way or not pieces:
        pieces.append(going.run_once(seconds=0))
    assert [one.tasks for one in pieces if one.tasks] == [2, 1, 2, 2]
    assert all(one == NOTHING or sum((one.projects, one.tasks)) <= 2 for one in pieces)
    assert ids(bench) == {owing}
    bench.history._seen.clear()


def turn(pruning: Pruning) -> float:
    """Slices of one turn, to the end of the pass."""
    while (pause := pruning.in_turn()) == PAUSE:
        pass
    return pause


def test_one_process_prunes_at_a_time(bench: FlowBench, other: FlowBench) -> None:
    done(bench)
    bench.pass_time(2 * DAY)
    other.store.clock_shift = bench.store.clock_shift
    mine, theirs = Pruning(bench.rt, lambda: AGES), Pruning(other.rt, lambda: AGES)
    assert turn(mine) == INTERVAL
    assert ids(bench) == set()
    bench.history._seen.clear()
    done(bench)
    bench.pass_time(2 * DAY)
    assert INTERVAL / 2 <= turn(theirs) <= INTERVAL
    assert len(ids(bench)) == 1, "by its clock it is the first one's turn yet"
    other.store.clock_shift = bench.store.clock_shift
    turn(theirs)
    assert ids(bench) == set()
    bench.history._seen.clear()


def test_a_worker_prunes_at_its_boot_and_goes_on_while_there_is_more(bench: FlowBench) -> None:
    pauses = [0.0, 0.0, 60.0]
    me = HolderFacts("w9", "celery@w9", "host", 1, "boot", "ns", "start")
    loop = Loop(bench.rt, me, Errands(), lambda: None, prune=lambda: pauses.pop(0))
    for _ in range(5):
        loop.run_once()
    assert pauses == []
