"""What must hold of every store at every moment, whatever was killed, lost or repeated (design section 4, rules 1, 2).

    check(store)                   # as it stands now
    history = History(store)       # and over time: call history.check() as often as you like
    check_all_ended(store)         # when the work is meant to be over

Each looks with single statements, so that a busy store may be looked at too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from argus_celery.records import NOBODY, QUEUE, AttemptOutcome, ProjectStatus, TaskState
from argus_celery.store.engine import Store
from argus_celery.store.leases import PARKED
from argus_celery.store.schema import attempts, leases, projects, queues, tasks

BY_A_RUN = {AttemptOutcome.SUCCEEDED, AttemptOutcome.FAILED}
"""Attempts that end their task."""


def check(store: Store) -> None:
    """Raise ``AssertionError`` that lists every violation."""
    broken = list(violations(store))
    assert not broken, "\n".join(["the store breaks its invariants:", *broken])


def check_all_ended(store: Store) -> None:
    """``check``, and no task is alive any more."""
    check(store)
    alive = _rows(store, sa.select(leases.c.task_id, leases.c.holder, leases.c.token))
    assert not alive, f"tasks that have not ended: {alive}"


def violations(store: Store) -> Iterator[str]:
    yield from _leases_without_task(store)
    yield from _leases_out_of_sight(store)
    yield from _replaced_by_nothing(store)
    for row in _tasks(store):
        yield from _of_lease(row)
        yield from _of_parking(row)
        yield from _of_outcome(row)
    yield from _of_attempts(store)


def _leases_without_task(store: Store) -> Iterator[str]:
    query = sa.select(leases.c.task_id).where(~sa.exists().where(tasks.c.id == leases.c.task_id))
    for (task_id,) in _rows(store, query):
        yield f"lease of {task_id}: there is no such task"


def _leases_out_of_sight(store: Store) -> Iterator[str]:
    known = sa.exists().where(queues.c.queue == leases.c.queue, queues.c.priority == leases.c.priority)
    for row in _rows(store, sa.select(leases.c.task_id, leases.c.queue, leases.c.priority).where(~known)):
        yield f"task {row.task_id}: the scheduler does not know its queue {row.queue!r} at priority {row.priority}"


def _replaced_by_nothing(store: Store) -> Iterator[str]:
    """A replaced task waits for its successor, which can come only from a task that is still alive."""
    others = leases.alias()
    alive = sa.exists().where(others.c.project_id == leases.c.project_id, others.c.eligible_at < PARKED)
    for (task_id,) in _rows(store, sa.select(leases.c.task_id).where(leases.c.eligible_at >= PARKED, ~alive)):
        yield f"task {task_id} was replaced and waits for a successor that nobody will send"


def _tasks(store: Store) -> list[Any]:
    t, lease, p = tasks.c, leases.c, projects.c
    columns = (t.id, t.outcome, t.fence, t.undelivered, t.finished_at, t.losses, t.max_losses, t.project_id)
    row = (lease.task_id.label("lease"), lease.token, lease.holder, lease.claim, lease.eligible_at, lease.ttl)
    parked = (lease.paused, lease.waits, lease.project_id.label("lease_project"))
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
    if row.paused and (row.paused_at is None or not ProjectStatus(row.status).live):
        yield f"task {row.id} is parked, but nothing will resume it (project {row.status}, paused {row.paused_at})"
    if row.waits:
        yield f"task {row.id} waits for {row.waits} things that are not recorded anywhere"
    if row.status in (None, ProjectStatus.COMPLETED, ProjectStatus.FAILED):
        yield f"task {row.id} has not ended, but its project is {row.status or 'gone'}"


def _of_outcome(row: Any) -> Iterator[str]:
    if row.outcome is None:
        if row.undelivered or row.finished_at is not None:
            yield f"task {row.id} has not ended, but is finished or owed"
        return
    if not TaskState(row.outcome).ended or row.finished_at is None:
        yield f"task {row.id}: {row.outcome} at {row.finished_at} is no terminal outcome"
    if row.outcome == TaskState.DEAD and row.losses < row.max_losses:
        yield f"task {row.id} is dead after {row.losses} losses of {row.max_losses}"


def _of_attempts(store: Store) -> Iterator[str]:
    """One outcome, written by the newest token; every counter has its attempts."""
    t, a, lease = tasks.c, attempts.c, leases.c
    columns = (t.id, t.outcome, t.fence, t.attempts, t.losses, t.retries, lease.token.label("lease"), lease.holder)
    source = tasks.outerjoin(leases, lease.task_id == t.id).join(attempts, a.task_id == t.id)
    query = sa.select(*columns, a.token, a.outcome.label("how"), a.holder.label("by"), a.started_at)
    by_task: dict[str, list[Any]] = defaultdict(list)
    for row in _rows(store, query.select_from(source)):
        by_task[row.id].append(row)
    for task_id, runs in by_task.items():
        yield from _of_runs(task_id, runs)


def _of_runs(task_id: str, runs: list[Any]) -> Iterator[str]:
    task, newest = runs[0], max(run.token for run in runs)
    final = [run for run in runs if AttemptOutcome(run.how) in BY_A_RUN]
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


@dataclass(frozen=True, slots=True)
class _Seen:
    token: int
    holder: str
    outcome: str | None


class History:
    """What may not change between two looks: tokens never fall, an outcome stays, a token has one holder."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._seen: dict[str, _Seen] = {}
        self._granted: dict[tuple[str, int], str] = {}

    def check(self) -> None:
        check(self.store)
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
            if before.outcome is not None and now != before:
                yield f"task {row.id} had ended {before.outcome}, now {now}"
            if now.holder > QUEUE and self._granted.setdefault((row.id, token), now.holder) != now.holder:
                yield f"task {row.id}: two holders were granted token {token}"


def _rows(store: Store, query: sa.Select[Any]) -> list[Any]:
    return store.statement(lambda connection: list(connection.execute(query)))
