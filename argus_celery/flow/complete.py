"""Complete: the one terminal outcome of a task, with all that follows from it, in one fenced transaction."""

from __future__ import annotations

from sqlalchemy.engine import Connection

from argus_celery import signals
from argus_celery.errors import LeaseLost
from argus_celery.flow.enqueue import Recorded, announce, check_payloads, past_rivals, record
from argus_celery.flow.outage import wait_out
from argus_celery.flow.publish import send
from argus_celery.flow.runtime import Runtime
from argus_celery.records import AttemptOutcome, Claim, NewTask, Outcome, TaskState
from argus_celery.store import attempts, leases, projects, tasks

_ATTEMPT = {TaskState.SUCCEEDED: AttemptOutcome.SUCCEEDED}


def complete(rt: Runtime, claim: Claim, outcome: Outcome) -> None:
    """End the task under this claim and record its continuations; publish them after the commit.

    Waits while the store is away. Raises ``LeaseLost``, with nothing written, if the claim is not held any more.
    """
    check_payloads(rt, outcome.continuations)
    recorded = wait_out(lambda: past_rivals(lambda: rt.store.transaction(lambda c: _write(rt, c, claim, outcome))))
    _announce(rt, claim, outcome)
    if recorded.enqueued:
        announce(rt, outcome.continuations, recorded)
    send(rt, recorded.dispatches)


def _write(rt: Runtime, connection: Connection, claim: Claim, outcome: Outcome) -> Recorded:
    continuations = _allowed(rt, connection, claim, outcome)
    attempt = _ATTEMPT.get(outcome.state, AttemptOutcome.FAILED)
    attempts.append(rt.store, connection, [claim.task_id], attempt, outcome.error)
    if not leases.delete(connection, claim.task_id, claim.token, claim.holder):
        if tasks.ended_by(connection, claim.task_id, claim.token):
            return Recorded()  # a commit whose answer was lost
        raise lost(claim)
    tasks.end(
        rt.store,
        connection,
        claim.task_id,
        claim.token,
        outcome.state,
        ran=True,
        result=outcome.result,
        error=outcome.error,
        undelivered=outcome.undelivered,
    )
    return record(rt, connection, continuations, look=True) if continuations else Recorded()


def _allowed(rt: Runtime, connection: Connection, claim: Claim, outcome: Outcome) -> tuple[NewTask, ...]:
    """Continuations of a cancelled project do not happen; the outcome stands."""
    if not outcome.continuations:
        return ()
    project = projects.shared(rt.store, connection, {claim.project_id}).get(claim.project_id)
    return outcome.continuations if project is not None and project.status.live else ()


def lost(claim: Claim) -> LeaseLost:
    return LeaseLost(
        f"task {claim.task_id}: token {claim.token} is not the lease's any more; nothing of this run was written"
    )


def _announce(rt: Runtime, claim: Claim, outcome: Outcome) -> None:
    sender, task_id, token = rt.store.app_name, claim.task_id, claim.token
    if outcome.state is TaskState.FAILED:
        signals.task_failed.send(sender=sender, task_id=task_id, token=token, error=outcome.error)
    signals.task_completed.send(sender=sender, task_id=task_id, token=token, state=outcome.state)
