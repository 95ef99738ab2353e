"""Prune: what has ended goes when ``argus_retention`` is over, piece by piece, while everything else goes on.

A project that has ended goes whole, counted from its end. Of one that is open its ended tasks go, each by its own age.
One that is closed and not done keeps all: its outcome is read from its tasks.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from argus_celery.flow.runtime import Runtime
from argus_celery.store import events, holders, projects, pruning, turns
from argus_celery.store.pruning import Ages

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

BATCH = 200
"""Rows of one transaction: on SQLite it keeps every other writer waiting."""
PROJECTS = 50
SLICE, PAUSE = 0.05, 1.0
"""Seconds that a worker's loop prunes for at a stretch, and leaves to everything else before the next."""
INTERVAL = 600.0
"""Seconds for which one process has its turn, and between two looks where there is nothing to do."""
UNSEEN_MS = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many went."""

    projects: int = 0
    tasks: int = 0
    chords: int = 0
    """Their parts are counted too."""
    groups: int = 0
    revocations: int = 0

    def __add__(self, other: Pruned) -> Pruned:
        return Pruned(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


class Pruning:
    """One pass over all there is to prune, which may be interrupted between any two transactions."""

    def __init__(self, rt: Runtime, ages: Callable[[], Ages]) -> None:
        self.rt, self.ages = rt, ages
        self._pass: Iterator[Pruned] | None = None

    @property
    def under_way(self) -> bool:
        return self._pass is not None

    def run_once(self, seconds: float = float("inf")) -> Pruned:
        """Go on with the pass for so long, or to its end."""
        ends = time.monotonic() + seconds
        total = Pruned()
        going, self._pass = self._pass or _pieces(self.rt, self.ages()), None  # an error ends the pass
        for some in going:
            total += some
            if time.monotonic() >= ends:
                self._pass = going
                break
        return total

    def in_turn(self) -> float:
        """A slice of a pass, if it is this process's turn; returns the seconds until the next."""
        if not self.under_way and not self._is_my_turn():
            return INTERVAL * random.uniform(0.5, 1.0)
        self.run_once(SLICE)
        return PAUSE if self.under_way else INTERVAL

    def _is_my_turn(self) -> bool:
        ms = round(INTERVAL * 1000)
        return self.rt.store.transaction(lambda connection: turns.take(self.rt.store, connection, "prune", ms))


def foresee(rt: Runtime, ages: Ages) -> Pruned:
    """How many projects and tasks would go now."""
    store = rt.store
    return Pruned(
        projects=store.read(lambda connection: pruning.count_projects(store, connection, ages.ended)),
        tasks=store.read(lambda connection: pruning.count_tasks(store, connection, ages)),
    )


def _pieces(rt: Runtime, ages: Ages) -> Iterator[Pruned]:
    """Each piece is one transaction."""
    store, age, results = rt.store, ages.ended, ages.results
    yield from _each(rt, lambda c, after: pruning.ended_projects(store, c, age, after, PROJECTS), _drop_ended, ages)
    yield from _each(rt, lambda c, after: pruning.open_projects(store, c, ages, after, PROJECTS), _drop_old, ages)
    for gone in _batches(rt, lambda c: pruning.drop_chords(store, c, age, BATCH)):
        yield Pruned(chords=gone)
    if results is not None:
        for gone in _batches(rt, lambda c: pruning.drop_groups(store, c, results, BATCH)):
            yield Pruned(groups=gone)
    for drop in (pruning.drop_revoked_ids, pruning.drop_stamps):
        for gone in _batches(rt, lambda c, drop=drop: drop(store, c, age, BATCH)):  # type: ignore[misc]
            yield Pruned(revocations=gone)
    for _ in _batches(rt, lambda c: events.drop_unsent(c, BATCH)):
        yield Pruned()
    store.transaction(lambda connection: holders.forget(store, connection, max(UNSEEN_MS, age)))


Find = Callable[["Connection", int], list[int]]
Drop = Callable[[Runtime, "Connection", int, Ages], Pruned]


def _each(rt: Runtime, find: Find, drop: Drop, ages: Ages) -> Iterator[Pruned]:
    """For each project found, pieces until nothing of it goes any more."""
    after = 0
    while found := rt.store.statement(lambda connection, after=after: find(connection, after)):  # type: ignore[misc]
        for project_id in found:
            while (some := _piece(rt, drop, project_id, ages)) != Pruned():
                yield some
        after = found[-1]


def _piece(rt: Runtime, drop: Drop, project_id: int, ages: Ages) -> Pruned:
    return rt.store.transaction(lambda connection: drop(rt, connection, project_id, ages))


def _drop_ended(rt: Runtime, connection: Connection, project_id: int, ages: Ages) -> Pruned:
    """Under the exclusive lock: a retry that puts something back makes the project live again."""
    if projects.exclusive(rt.store, connection, project_id) is None:
        return Pruned()
    if not pruning.is_over(rt.store, connection, project_id, ages.ended):
        return Pruned()
    ids = pruning.lock_tasks_of_ended(rt.store, connection, project_id, BATCH)
    if ids:
        pruning.drop_tasks(connection, ids)
        return Pruned(tasks=len(ids))
    gone = pruning.drop_chords_of(connection, project_id, BATCH)
    return Pruned(chords=gone) if gone else Pruned(projects=int(pruning.drop_project(connection, project_id)))


def _drop_old(rt: Runtime, connection: Connection, project_id: int, ages: Ages) -> Pruned:
    """Under the shared lock, which keeps a retry out and lets the project's other work go on."""
    projects.shared(rt.store, connection, {project_id})
    ids = pruning.lock_tasks_of_open(rt.store, connection, project_id, ages, BATCH)
    pruning.drop_tasks(connection, ids)
    return Pruned(tasks=len(ids))


def _batches(rt: Runtime, drop: Callable[[Connection], int]) -> Iterator[int]:
    while gone := rt.store.transaction(drop):
        yield gone
