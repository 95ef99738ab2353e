"""What must hold of every store at every moment, whatever was killed, lost or repeated (design section 4, rules 1, 2).

    check(store)                   # as it stands now
    history = History(store)       # and over time: call history.check() as often as you like
    check_all_ended(store)         # when the work is meant to be over

A task that a test has put back after its failure may end once more: ``revived`` names those. One that it has restarted,
and what follows that, may even if it had succeeded: ``restarted``.
Each looks with single statements, so that a busy store may be looked at too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from argus_celery.flow.unknown import NOBODY_KNEW
from argus_celery.records import NOBODY, QUEUE, AttemptOutcome, ProjectStatus, TaskState
from argus_celery.store.engine import Store
from argus_celery.store.leases import PARKED
from argus_celery.store.limits import ADMITTED, BY_LIMIT, BY_PAUSE, WAITING
from argus_celery.store.schema import (
    attempts,
    chords,
    edges,
    lease_limits,
    leases,
    limits,
    projects,
    queues,
    steps,
    tasks,
    waits,
)
from argus_celery.store.waits import NEVER

BY_A_RUN = {AttemptOutcome.SUCCEEDED, AttemptOutcome.FAILED}
"""Attempts that end their task."""


def check(store: Store, revived: Collection[str] = (), restarted: Collection[str] = ()) -> None:
    """Raise ``AssertionError`` that lists every violation."""
    broken = list(violations(store, revived, restarted))
    assert not broken, "\n".join(["the store breaks its invariants:", *broken])


def check_all_ended(store: Store, revived: Collection[str] = (), restarted: Collection[str] = ()) -> None:
    """``check``, no task is alive any more, and no chord is full and still waits for what it leads to."""
    check(store, revived, restarted)
    owed = _rows(store, sa.select(chords.c.id, chords.c.done, chords.c.size).where(chords.c.owed > 0))
    assert not owed, f"chords that are full and were not fired: {owed}"
    alive = _rows(store, sa.select(leases.c.task_id, leases.c.holder, leases.c.token))
    assert not alive, f"tasks that have not ended: {alive}"


def violations(store: Store, revived: Collection[str] = (), restarted: Collection[str] = ()) -> Iterator[str]:
    yield from _leases_without_task(store)
    yield from _leases_out_of_sight(store)
    yield from _left_of_pruned(store)
    yield from _replaced_by_nothing(store)
    yield from _waits_that_cannot_end(store)
    yield from _full_and_not_owed(store)
    yield from _of_lines(store)
    yield from _of_limits(store)
    for row in _tasks(store):
        yield from _of_lease(row)
        yield from _of_parking(row)
        yield from _of_outcome(row)
    yield from _of_attempts(store, revived, restarted)


def _leases_without_task(store: Store) -> Iterator[str]:
    query = sa.select(leases.c.task_id).where(~sa.exists().where(tasks.c.id == leases.c.task_id))
    for (task_id,) in _rows(store, query):
        yield f"lease of {task_id}: there is no such task"


def _left_of_pruned(store: Store) -> Iterator[str]:
    """Else a task that gets the id of one that is gone would begin with what that one has left."""
    for column in (attempts.c.task_id, steps.c.task_id, edges.c.child_id, edges.c.parent_id):
        orphans = sa.select(column).where(~sa.exists().where(tasks.c.id == column)).distinct()
        for (task_id,) in _rows(store, orphans):
            yield f"{column.table.name}.{column.name} names {task_id}, and there is no such task"


def _leases_out_of_sight(store: Store) -> Iterator[str]:
    known = sa.exists().where(queues.c.queue == leases.c.queue, queues.c.priority == leases.c.priority)
    for row in _rows(store, sa.select(leases.c.task_id, leases.c.queue, leases.c.priority).where(~known)):
        yield f"task {row.task_id}: the scheduler does not know its queue {row.queue!r} at priority {row.priority}"


def _replaced_by_nothing(store: Store) -> Iterator[str]:
    """A replaced task waits for its successor: of a task that is alive, or a chord, or for the debt that ends it."""
    others, project = leases.alias(), leases.c.project_id
    alive = sa.exists().where(others.c.project_id == project, others.c.eligible_at < PARKED)
    chord = sa.exists().where(chords.c.project_id == project, chords.c.sent_at.is_(None))
    debt = sa.exists().where(tasks.c.project_id == project, tasks.c.undelivered > 0)
    stuck = sa.and_(leases.c.eligible_at >= PARKED, ~alive, ~chord, ~debt)
    for (task_id,) in _rows(store, sa.select(leases.c.task_id).where(stuck)):
        yield f"task {task_id} was replaced and waits for a successor that nobody will send"


def _waits_that_cannot_end(store: Store) -> Iterator[str]:
    """Who waits for ever waits for an event, and stands where it is found when that is told."""
    w = waits.c
    row = sa.exists().where(w.task_id == leases.c.task_id, w.project_id == leases.c.project_id, w.until.is_(None))
    endless = (leases.c.holder == NOBODY, leases.c.eligible_at == NEVER)
    for (task_id,) in _rows(store, sa.select(leases.c.task_id).where(*endless, ~row.where(w.name > ""))):
        yield f"task {task_id} waits for ever, and for no event"
    alone = sa.select(w.task_id).where(~sa.exists().where(tasks.c.id == w.task_id))
    for (task_id,) in _rows(store, alone):
        yield f"a wait names {task_id}, and there is no such task"


def _full_and_not_owed(store: Store) -> Iterator[str]:
    full = (chords.c.done >= chords.c.size, chords.c.sent_at.is_(None), chords.c.owed == 0)
    for (chord_id,) in _rows(store, sa.select(chords.c.id).where(*full)):
        yield f"chord {chord_id} has all its parts, and nobody will send its body"


def _of_lines(store: Store) -> Iterator[str]:
    """Who is parked by a limit stands in the line of one; who has a slot, or stands in a line, is alive."""
    line = sa.exists().where(lease_limits.c.task_id == leases.c.task_id, lease_limits.c.state == WAITING)
    for row in _rows(store, sa.select(leases.c.task_id).where(leases.c.paused == BY_LIMIT, ~line)):
        yield f"task {row.task_id} is parked by a limit and stands in no line"
    alive = sa.exists().where(leases.c.task_id == lease_limits.c.task_id)
    for row in _rows(store, sa.select(lease_limits.c.task_id, lease_limits.c.name).where(~alive)):
        yield f"task {row.task_id} is under limit {row.name!r} and is not alive"


def _of_limits(store: Store) -> Iterator[str]:
    """Nobody waits for a slot that is free and that no look at the limit will give out."""
    m = lease_limits.c
    count = sa.select(sa.func.count()).where(m.name == limits.c.name).correlate(limits)
    line, slots = (count.where(m.state == state).scalar_subquery() for state in (WAITING, ADMITTED))
    query = sa.select(limits.c.name, limits.c.concurrency, line.label("line"), slots.label("slots"))
    for row in _rows(store, query.where(limits.c.due_at.is_(None))):
        if row.line and (row.concurrency is None or row.slots < row.concurrency):
            yield f"limit {row.name!r} has {row.slots} of {row.concurrency} slots taken, and {row.line} wait for one"


def _tasks(store: Store) -> list[Any]:
    t, lease, p = tasks.c, leases.c, projects.c
    columns = (t.id, t.outcome, t.fence, t.undelivered, t.finished_at, t.losses, t.max_losses, t.project_id, t.error)
    row = (lease.task_id.label("lease"), lease.token, lease.holder, lease.claim, lease.eligible_at, lease.ttl)
    parked = (lease.paused, lease.waits, lease.leads, lease.project_id.label("lease_project"))
    unmet = sa.select(sa.func.count()).where(edges.c.met == 0)
    parked += (
        unmet.where(edges.c.child_id == t.id).correlate(tasks).scalar_subquery().label("unmet"),
        unmet.where(edges.c.parent_id == t.id).correlate(tasks).scalar_subquery().label("due_children"),
    )
    project = (p.status, p.paused_at, store.now.label("now"))
    source = tasks.outerjoin(leases, lease.task_id == t.id).outerjoin(projects, p.id == t.project_id)
    return _rows(store, sa.select(*columns, *row, *parked, *project).select_from(source))


def _of_lease(row: Any) -> Iterator[str]:
    """A task that has not ended has a lease row, and one that has ended has none."""
    if row.outcome is None and row.lease is None:
        yield f"task {row.id} has not ended and has no lease: it is lost"
    if row.outcome is not None and row.lease is not None:
        yield f"task {row.id} ended {row.outcome} and still has a lease"
    if row.lease is None:
        return
    if row.lease_project != row.project_id:
        yield f"task {row.id}: lease and task name different projects"
    if row.holder > QUEUE and row.claim is None:
        yield f"task {row.id}: held by {row.holder} without the mark of its claim"
    if row.holder > QUEUE and row.eligible_at > row.now + row.ttl:
        yield f"task {row.id}: held by {row.holder} for longer than its TTL"
    if row.holder == QUEUE and row.token < 1:
        yield f"task {row.id}: in the queue under token {row.token}"


def _of_parking(row: Any) -> Iterator[str]:
    """What is not due and does not become due waits for something that can still happen."""
    if row.lease is None:
        return
    if row.paused == BY_PAUSE and (row.paused_at is None or not ProjectStatus(row.status).live):
        yield f"task {row.id} is parked, but nothing will resume it (project {row.status}, paused {row.paused_at})"
    if row.waits != row.unmet and ProjectStatus(row.status).live:
        yield f"task {row.id} waits for {row.waits} tasks, and comes after {row.unmet} of which it was not told"
    if row.waits and row.holder != NOBODY:
        yield f"task {row.id} waits for {row.waits} tasks and is held by {row.holder}"
    if row.due_children and not row.leads:
        yield f"task {row.id} has {row.due_children} tasks behind it, which its end would not tell"
    if row.status in (None, ProjectStatus.COMPLETED, ProjectStatus.FAILED):
        yield f"task {row.id} has not ended, but its project is {row.status or 'gone'}"


def _of_outcome(row: Any) -> Iterator[str]:
    if row.outcome is None:
        if row.undelivered or row.finished_at is not None:
            yield f"task {row.id} has not ended, but is finished or owed"
        return
    if row.max_losses == 0 and row.outcome == TaskState.RUNNING:
        return  # the state of a task that is not durable
    if not TaskState(row.outcome).ended or row.finished_at is None:
        yield f"task {row.id}: {row.outcome} at {row.finished_at} is no terminal outcome"
    if row.outcome == TaskState.DEAD and row.losses < row.max_losses and NOBODY_KNEW not in row.error:
        yield f"task {row.id} is dead after {row.losses} losses of {row.max_losses}"


def _of_attempts(store: Store, revived: Collection[str], restarted: Collection[str]) -> Iterator[str]:
    """One outcome, written by the newest token; every counter has its attempts."""
    t, a, lease = tasks.c, attempts.c, leases.c
    columns = (t.id, t.outcome, t.fence, t.attempts, t.losses, t.retries, lease.token.label("lease"), lease.holder)
    source = tasks.outerjoin(leases, lease.task_id == t.id).join(attempts, a.task_id == t.id)
    query = sa.select(
        *columns, a.token, a.outcome.label("how"), a.holder.label("by"), a.started_at, a.finished_at, a.seen_at
    )
    by_task: dict[str, list[Any]] = defaultdict(list)
    for row in _rows(store, query.select_from(source)):
        by_task[row.id].append(row)
    for task_id, runs in by_task.items():
        yield from _of_runs(task_id, runs, task_id in revived, task_id in restarted)


def _of_runs(task_id: str, runs: list[Any], revived: bool, restarted: bool) -> Iterator[str]:
    task, newest = runs[0], max(run.token for run in runs)
    final = [run for run in runs if AttemptOutcome(run.how) in BY_A_RUN]
    if revived or restarted:
        final = [
            run
            for run in final
            if (run.how == AttemptOutcome.SUCCEEDED and not restarted) or (run.token == task.fence and task.outcome)
        ]
    if len(final) > 1:
        yield f"task {task_id} was ended by the runs {sorted(run.token for run in final)}"
    if final and (task.outcome is None or final[0].token != task.fence):
        yield f"task {task_id}: run {final[0].token} ended it, its row says {task.outcome} by {task.fence}"
    if task.outcome is not None and newest > task.fence:
        yield f"task {task_id} ended under token {task.fence}, but a newer run {newest} was granted"
    if task.lease is not None and not (newest < task.lease or (newest == task.lease and task.holder == NOBODY)):
        yield f"task {task_id}: the lease's token {task.lease} ({task.holder!r}) is not above the ended run {newest}"
    if task.attempts != sum(run.started_at is not None for run in runs):
        yield f"task {task_id} counts {task.attempts} attempts, but {len(runs)} runs are noted"
    for counter, how in (("losses", AttemptOutcome.LOST), ("retries", AttemptOutcome.RETRIED)):
        if getattr(task, counter) > sum(run.how == how for run in runs):
            yield f"task {task_id} counts {getattr(task, counter)} {counter}, more than runs that ended so"
    for run in runs:
        if run.by in (NOBODY, QUEUE):
            yield f"task {task_id}: run {run.token} belongs to nobody"
        if (run.how == AttemptOutcome.LOST) != (run.seen_at is not None) or (run.seen_at or 0) > run.finished_at:
            yield f"task {task_id}: run {run.token} was {run.how} at {run.finished_at}, seen last at {run.seen_at}"


@dataclass(frozen=True, slots=True)
class _Seen:
    token: int
    holder: str
    outcome: str | None


class History:
    """What may not change between two looks: tokens never fall, an outcome stays, a token has one holder."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.revived: set[str] = set()
        self.restarted: set[str] = set()
        self._seen: dict[str, _Seen] = {}
        self._granted: dict[tuple[str, int], str] = {}

    def check(self) -> None:
        check(self.store, self.revived, self.restarted)
        broken = list(self._changes())
        assert not broken, "\n".join(["the store went back on its word:", *broken])

    def _changes(self) -> Iterator[str]:
        for row in _tasks(self.store):
            token = row.fence if row.lease is None else row.token
            now = _Seen(token, row.holder or NOBODY, row.outcome)
            before = self._seen.get(row.id, _Seen(0, NOBODY, None))
            self._seen[row.id] = now
            if now.token < before.token:
                yield f"task {row.id}: its token fell from {before.token} to {now.token}"
            if before.outcome is not None and now != before and not self._was_put_back(row.id, before, now):
                yield f"task {row.id} had ended {before.outcome}, now {now}"
            if now.holder > QUEUE and self._granted.setdefault((row.id, token), now.holder) != now.holder:
                yield f"task {row.id}: two holders were granted token {token}"

    def _was_put_back(self, task_id: str, before: _Seen, now: _Seen) -> bool:
        if task_id in self.restarted:
            return True
        return task_id in self.revived and before.outcome != TaskState.SUCCEEDED and now.token > before.token


def _rows(store: Store, query: sa.Select[Any]) -> list[Any]:
    return store.statement(lambda connection: list(connection.execute(query)))
