"""Complete: the one terminal outcome of a task, with all that follows from it, in one fenced transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from argus_celery import signals
from argus_celery.errors import LeaseLost, StoreUnavailable
from argus_celery.flow import alarm, points
from argus_celery.flow.checks import check
from argus_celery.flow.end import end_runs, follow_up
from argus_celery.flow.enqueue import Recorded, announce, past_rivals, record
from argus_celery.flow.outage import wait_out
from argus_celery.flow.publish import send
from argus_celery.flow.runtime import Runtime
from argus_celery.flow.wake import Released
from argus_celery.records import AttemptOutcome, Claim, NewTask, Outcome, PartCount, TaskState
from argus_celery.store import attempts, chords, ended, finishing, leases, projects, tasks
from argus_celery.store.leases import Lease
from argus_celery.store.tasks import Ending

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

Finished = tuple[Claim, Outcome]


@dataclass
class Written:
    """What one completing transaction wrote."""

    ours: set[tuple[str, int]] = field(default_factory=set)
    """Claims whose outcome stands: written now, or by a commit whose answer was lost."""
    ready: set[str] = field(default_factory=set)
    """Chords whose last part this was: they are to be fired."""
    uncounted: set[tuple[str, int]] = field(default_factory=set)
    """Claims whose part belongs to a chord that the store does not know."""
    awaited: bool = False
    """Somebody waits for ends, and is to be told of these."""
    continuations: tuple[NewTask, ...] = ()
    recorded: Recorded = field(default_factory=Recorded)
    released: Released = field(default_factory=Released)
    """What waited for these."""


def complete(rt: Runtime, claim: Claim, outcome: Outcome) -> Written:
    """End the task under this claim and record its continuations; publish them after the commit.

    Waits while the store is away. Raises ``LeaseLost``, with nothing written, if the claim is not held any more.
    """
    written = complete_all(rt, [(claim, outcome)])
    if not written.ours:
        raise lost(claim)
    return written


def complete_many(rt: Runtime, finished: Sequence[Finished]) -> list[bool]:
    """``complete_all``; says of each whether its claim was held and the outcome stands. A sweep fires its chords."""
    written = complete_all(rt, finished)
    return [(claim.task_id, claim.token) in written.ours for claim, _ in finished]


def complete_all(rt: Runtime, finished: Sequence[Finished]) -> Written:
    """End all these tasks in one transaction. The claims are one worker's. Waits while the store is away."""
    leading_on = [one for _, outcome in finished for one in outcome.continuations]
    check(rt, leading_on)
    wait_out(lambda: rt.window.note(rt.store, leading_on))
    written = wait_out(lambda: _in_one(rt, finished) or _in_transaction(rt, finished))
    if written.ours:
        points.reached(points.Kind.COMPLETE, (outcome.state for _, outcome in finished))
    if written.awaited:
        _tell(rt, written)
    for claim, outcome in finished:
        if (claim.task_id, claim.token) in written.ours:
            _announce(rt, claim, outcome)
    announce(rt, written.continuations, written.recorded)
    send(rt, written.recorded.dispatches)
    follow_up(rt, written.released)
    alarm.meet(rt, written.released.alarms)
    return written


def _in_one(rt: Runtime, finished: Sequence[Finished]) -> Written | None:
    """One end with nothing behind it, where that can be one statement; None if it was not to be written so."""
    (claim, outcome), *more = finished
    if more or not rt.store.dialect.writes_in_with or _leads_on(outcome):
        return None
    awaited = rt.store.statement(lambda connection: finishing.finish(rt.store, connection, claim, outcome))
    return None if awaited is None else Written({(claim.task_id, claim.token)}, awaited=awaited)


def _leads_on(outcome: Outcome) -> bool:
    return bool(outcome.follows or outcome.part or outcome.joined or outcome.continuations or outcome.chords)


def _in_transaction(rt: Runtime, finished: Sequence[Finished]) -> Written:
    return past_rivals(lambda: rt.store.transaction(lambda connection: _write(rt, connection, finished)))


def lost(claim: Claim) -> LeaseLost:
    return LeaseLost(
        f"task {claim.task_id}: token {claim.token} is not the lease's any more; nothing of this run was written"
    )


def _write(rt: Runtime, connection: Connection, finished: Sequence[Finished]) -> Written:
    cancelled = _cancelled(rt, connection, finished)
    rows = _lock(rt, connection, finished)
    held = set(rows)
    ours = [(claim, outcome) for claim, outcome in finished if (claim.task_id, claim.token) in held]
    lost_answers = _answer_lost(connection, finished, held)
    written = Written(held | lost_answers)
    _count_parts(rt, connection, ours, written)
    written.awaited, written.released = _end(rt, connection, ours, written.uncounted, rows)
    if lost_answers:
        written.ready |= chords.ready_of(connection, _chords_of(finished, lost_answers))
    leading_on = [outcome for claim, outcome in ours if claim.project_id not in cancelled]
    written.continuations = tuple(one for outcome in leading_on for one in outcome.continuations)
    new = [chord for outcome in leading_on for chord in outcome.chords]
    if new:
        chords.insert(rt.store, connection, new)
    if written.continuations:
        written.recorded = record(rt, connection, written.continuations, look=True)
    return written


def _cancelled(rt: Runtime, connection: Connection, finished: Sequence[Finished]) -> set[int]:
    """Projects that allow no continuations; the outcome of the run stands all the same. First in the lock order."""
    leading_on = {claim.project_id for claim, outcome in finished if outcome.continuations}
    found = projects.shared(rt.store, connection, leading_on)
    return {id_ for id_ in leading_on if id_ not in found or not found[id_].status.live}


def _lock(rt: Runtime, connection: Connection, finished: Sequence[Finished]) -> dict[tuple[str, int], Lease]:
    holder = finished[0][0].holder
    claims = [(claim.task_id, claim.token) for claim, _ in finished]
    return {(row.task_id, row.token): row for row in leases.lock_held(rt.store, connection, holder, claims)}


def _count_parts(rt: Runtime, connection: Connection, ours: Sequence[Finished], written: Written) -> None:
    """In the order of the chords, as everyone locks them."""
    for chord_id in sorted(chord_id for _, outcome in ours for chord_id in outcome.joined):
        chords.add(connection, chord_id)
    parts = [(outcome.part, claim) for claim, outcome in ours if outcome.part is not None]
    for part, claim in sorted(parts, key=lambda one: (one[0].chord_id, one[0].task_id)):
        counted = chords.count(rt.store, connection, part, claim.project_id, completing=True)
        if counted is PartCount.READY:
            written.ready.add(part.chord_id)
        elif counted is PartCount.UNKNOWN:
            written.uncounted.add((claim.task_id, claim.token))


def _chords_of(finished: Sequence[Finished], claims: set[tuple[str, int]]) -> list[str]:
    return [
        outcome.part.chord_id
        for claim, outcome in finished
        if outcome.part is not None and (claim.task_id, claim.token) in claims
    ]


def _end(
    rt: Runtime,
    connection: Connection,
    ours: Sequence[Finished],
    uncounted: set[tuple[str, int]],
    rows: Mapping[tuple[str, int], Lease],
) -> tuple[bool, Released]:
    if not ours:
        return False, Released()
    alike: dict[tuple[AttemptOutcome, str | None], list[str]] = {}
    for claim, outcome in ours:
        alike.setdefault((_attempt(outcome), outcome.error), []).append(claim.task_id)
    for (attempt, error), ids in alike.items():
        attempts.append(rt.store, connection, ids, attempt, error)
    endings = [
        _ending(claim, outcome, (claim.task_id, claim.token) in uncounted, rows[claim.task_id, claim.token])
        for claim, outcome in ours
    ]
    return end_runs(rt, connection, endings)


def _attempt(outcome: Outcome) -> AttemptOutcome:
    return AttemptOutcome.SUCCEEDED if outcome.state is TaskState.SUCCEEDED else AttemptOutcome.FAILED


def _ending(claim: Claim, outcome: Outcome, uncounted: bool, row: Lease) -> Ending:
    """A chord that the store does not know is counted by the result backend, which is told after the commit."""
    return Ending(
        claim.task_id,
        claim.token,
        outcome.state,
        error=outcome.error,
        result=outcome.result,
        ran=True,
        undelivered=outcome.undelivered,
        follows=outcome.follows or uncounted,
        leads=row.leads,
        limited=row.limited,
        alarms=row.project_id if row.alarms and outcome.state is TaskState.FAILED else None,
    )


def _answer_lost(
    connection: Connection, finished: Sequence[Finished], held: set[tuple[str, int]]
) -> set[tuple[str, int]]:
    """A commit whose answer was lost is no refusal: the task and this very run are noted as ended so.

    The fence alone would not tell: a dead letter that lapsed under this token bears it too.
    """
    missing = [(claim.task_id, claim.token, outcome) for claim, outcome in finished]
    return {
        (task_id, token)
        for task_id, token, outcome in missing
        if (task_id, token) not in held
        and tasks.ended_so(connection, task_id, token, outcome.state)
        and attempts.ended_so(connection, task_id, token, _attempt(outcome))
    }


def _tell(rt: Runtime, written: Written) -> None:
    """Who waits looks again by itself, a little later, if this fails."""
    with suppress(StoreUnavailable):
        ended.tell(rt.store, [task_id for task_id, _ in written.ours])


def _announce(rt: Runtime, claim: Claim, outcome: Outcome) -> None:
    sender, task_id, token = rt.store.app_name, claim.task_id, claim.token
    if outcome.state is TaskState.FAILED:
        signals.task_failed.send(sender=sender, task_id=task_id, token=token, error=outcome.error)
    signals.task_completed.send(sender=sender, task_id=task_id, token=token, state=outcome.state)
