"""Revoke: a task is not to run any more. Recorded once and for all, whatever workers and brokers do later.

A task that has not ended ends as ``cancelled`` at once, its run included: the lease is gone, so that the run can write
nothing. An id that has no task yet is kept, and met when its message is claimed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from argus_celery.flow.checks import check_name
from argus_celery.flow.end import end, follow_up
from argus_celery.flow.requeue import unrun
from argus_celery.flow.runtime import Runtime
from argus_celery.flow.wake import Released
from argus_celery.records import QUEUE, AttemptOutcome, Delivery, TaskState
from argus_celery.store import attempts, leases, revoked, tasks
from argus_celery.store.leases import Lease
from argus_celery.store.names import is_possible

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

BATCH = 500
REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class Revoked:
    """What became of the ids."""

    ended: frozenset[str] = frozenset()
    """Ended here as cancelled."""
    known: frozenset[str] = frozenset()
    """Had ended before, which nothing changes."""
    kept: frozenset[str] = frozenset()
    """No task yet: the next claim meets them."""

    def __or__(self, other: Revoked) -> Revoked:
        return Revoked(self.ended | other.ended, self.known | other.known, self.kept | other.kept)


def revoke(rt: Runtime, ids: Collection[str], why: str = REVOKED) -> Revoked:
    """Revoke these task ids; doing it twice changes nothing. Raises ``StoreUnavailable`` and ``BadTransaction``."""
    rt.store.check_outside("tasks cannot be revoked")
    possible = [one for one in dict.fromkeys(ids) if is_possible(one)]
    done = Revoked()
    for start in range(0, len(possible), BATCH):
        first = _once(rt, possible[start : start + BATCH], why)
        # What was recorded and claimed while the mark was not committed cannot have seen it: look again.
        second = _once(rt, sorted(first.kept), why) if first.kept else Revoked()
        done |= Revoked(first.ended, first.known) | second
    return done


def revoke_stamps(rt: Runtime, stamps: Mapping[str, Collection[str]]) -> None:
    """Keep these values by header. Tasks that bear them are revoked by the workers that meet them.

    Raises ``BadTask`` for what no store can hold, ``StoreUnavailable`` and ``BadTransaction``.
    """
    rt.store.check_outside("tasks cannot be revoked")
    for header, values in stamps.items():
        check_name("a stamped header", header)
        for value in values:
            check_name(f"a value of the stamped header {header}", value)

    def write(connection: Connection) -> None:
        for header, values in sorted(stamps.items()):
            revoked.put(rt.store, connection, header, values, REVOKED)

    rt.store.transaction(write)


def meet(rt: Runtime, refused: Sequence[Delivery]) -> set[str]:
    """Those of these refused deliveries whose task is cancelled; what bears a mark ends so here."""
    found = rt.store.statement(lambda connection: revoked.met(connection, [one.task_id for one in refused]))
    marked = {id_: one.why or REVOKED for id_, one in found.items() if one.marked and one.outcome is None}
    for why in sorted(set(marked.values())):
        revoke(rt, [id_ for id_ in marked if marked[id_] == why], why)
    return {
        one.task_id
        for one in refused
        if one.task_id in marked
        or ((task := found.get(one.task_id)) and (task.outcome, task.fence) == (TaskState.CANCELLED, one.token))
    }


def cancelled(rt: Runtime, claims: Collection[tuple[str, int]]) -> set[tuple[str, int]]:
    """Those of these (task, claim token)s whose task was cancelled during the run, or before it could begin."""
    found = rt.store.statement(lambda connection: revoked.met(connection, [task_id for task_id, _ in claims]))
    return {
        (task_id, token)
        for task_id, token in claims
        if (task := found.get(task_id)) and task.outcome is TaskState.CANCELLED and task.fence in (token - 1, token)
    }


def _once(rt: Runtime, ids: Sequence[str], why: str) -> Revoked:
    done, released = rt.store.transaction(lambda connection: _write(rt, connection, ids, why))
    follow_up(rt, released)
    return done


def _write(rt: Runtime, connection: Connection, ids: Sequence[str], why: str) -> tuple[Revoked, Released]:
    rows = leases.lock_all(rt.store, connection, ids)
    alive = frozenset(row.task_id for row in rows)
    released = end_cancelled(rt, connection, rows, why)
    rest = set(ids) - alive
    known = frozenset(tasks.ended(connection, rest)) if rest else frozenset()
    kept = frozenset(rest - known)
    if alive:
        revoked.forget(connection, alive)
    if kept:
        revoked.put(rt.store, connection, revoked.ID, kept, why)
    return Revoked(alive, known, kept), released


def end_cancelled(rt: Runtime, connection: Connection, rows: Sequence[Lease], why: str) -> Released:
    """End these locked rows as cancelled, what runs included: it can write nothing more."""
    if not rows:
        return Released()
    running = {row.task_id for row in rows if row.holder > QUEUE}
    if running:
        attempts.append(rt.store, connection, running, AttemptOutcome.CANCELLED, why)
    endings = [
        replace(unrun(rt, row, TaskState.CANCELLED, why), ran=row.task_id in running and row.started) for row in rows
    ]
    return end(rt, connection, endings)
