"""Complete: the one terminal outcome of a task, with all that follows from it, in one fenced transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from argus_celery import signals
from argus_celery.errors import LeaseLost
from argus_celery.flow.checks import check
from argus_celery.flow.enqueue import Recorded, announce, past_rivals, record
from argus_celery.flow.outage import wait_out
from argus_celery.flow.publish import send
from argus_celery.flow.runtime import Runtime
from argus_celery.records import AttemptOutcome, Claim, NewTask, Outcome, TaskState
from argus_celery.store import attempts, leases, projects, tasks
from argus_celery.store.tasks import Ending

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

Finished = tuple[Claim, Outcome]


@dataclass
class Written:
    """What one completing transaction wrote."""

    ours: set[tuple[str, int]] = field(default_factory=set)
    """Claims whose outcome stands: written now, or by a commit whose answer was lost."""
    continuations: tuple[NewTask, ...] = ()
    recorded: Recorded = field(default_factory=Recorded)


def complete(rt: Runtime, claim: Claim, outcome: Outcome) -> None:
    """End the task under this claim and record its continuations; publish them after the commit.

    Waits while the store is away. Raises ``LeaseLost``, with nothing written, if the claim is not held any more.
    """
    if not complete_many(rt, [(claim, outcome)])[0]:
        raise lost(claim)


def complete_many(rt: Runtime, finished: Sequence[Finished]) -> list[bool]:
    """End all these tasks in one transaction; says of each whether its claim was held and the outcome stands.

    The claims are one worker's. Waits while the store is away.
    """
    leading_on = [one for _, outcome in finished for one in outcome.continuations]
    check(rt, leading_on)
    wait_out(lambda: rt.window.note(rt.store, leading_on))
    written = wait_out(lambda: past_rivals(lambda: rt.store.transaction(lambda c: _write(rt, c, finished))))
    for claim, outcome in finished:
        if (claim.task_id, claim.token) in written.ours:
            _announce(rt, claim, outcome)
    announce(rt, written.continuations, written.recorded)
    send(rt, written.recorded.dispatches)
    return [(claim.task_id, claim.token) in written.ours for claim, _ in finished]


def lost(claim: Claim) -> LeaseLost:
    return LeaseLost(
        f"task {claim.task_id}: token {claim.token} is not the lease's any more; nothing of this run was written"
    )


def _write(rt: Runtime, connection: Connection, finished: Sequence[Finished]) -> Written:
    cancelled = _cancelled(rt, connection, finished)
    held = _lock(rt, connection, finished)
    ours = [(claim, outcome) for claim, outcome in finished if (claim.task_id, claim.token) in held]
    _end(rt, connection, ours)
    written = Written(held | _answer_lost(connection, finished, held))
    written.continuations = tuple(
        one for claim, outcome in ours if claim.project_id not in cancelled for one in outcome.continuations
    )
    if written.continuations:
        written.recorded = record(rt, connection, written.continuations, look=True)
    return written


def _cancelled(rt: Runtime, connection: Connection, finished: Sequence[Finished]) -> set[int]:
    """Projects that allow no continuations; the outcome of the run stands all the same. First in the lock order."""
    leading_on = {claim.project_id for claim, outcome in finished if outcome.continuations}
    found = projects.shared(rt.store, connection, leading_on)
    return {id_ for id_ in leading_on if id_ not in found or not found[id_].status.live}


def _lock(rt: Runtime, connection: Connection, finished: Sequence[Finished]) -> set[tuple[str, int]]:
    holder = finished[0][0].holder
    claims = [(claim.task_id, claim.token) for claim, _ in finished]
    return {(row.task_id, row.token) for row in leases.lock_held(rt.store, connection, holder, claims)}


def _end(rt: Runtime, connection: Connection, ours: Sequence[Finished]) -> None:
    if not ours:
        return
    alike: dict[tuple[AttemptOutcome, str | None], list[str]] = {}
    for claim, outcome in ours:
        alike.setdefault((_attempt(outcome), outcome.error), []).append(claim.task_id)
    for (attempt, error), ids in alike.items():
        attempts.append(rt.store, connection, ids, attempt, error)
    leases.delete_all(connection, [claim.task_id for claim, _ in ours])
    tasks.end(rt.store, connection, [_ending(claim, outcome) for claim, outcome in ours])


def _attempt(outcome: Outcome) -> AttemptOutcome:
    return AttemptOutcome.SUCCEEDED if outcome.state is TaskState.SUCCEEDED else AttemptOutcome.FAILED


def _ending(claim: Claim, outcome: Outcome) -> Ending:
    return Ending(
        claim.task_id,
        claim.token,
        outcome.state,
        error=outcome.error,
        result=outcome.result,
        ran=True,
        undelivered=outcome.undelivered,
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


def _announce(rt: Runtime, claim: Claim, outcome: Outcome) -> None:
    sender, task_id, token = rt.store.app_name, claim.task_id, claim.token
    if outcome.state is TaskState.FAILED:
        signals.task_failed.send(sender=sender, task_id=task_id, token=token, error=outcome.error)
    signals.task_completed.send(sender=sender, task_id=task_id, token=token, state=outcome.state)
