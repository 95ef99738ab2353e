"""Retry and replace: the same row goes on with another message and due time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from argus_celery.flow.checks import check
from argus_celery.flow.complete import lost
from argus_celery.flow.enqueue import Recorded, announce, past_rivals, record
from argus_celery.flow.outage import wait_out
from argus_celery.flow.publish import send
from argus_celery.flow.requeue import go_on_as
from argus_celery.flow.runtime import Runtime
from argus_celery.records import AttemptOutcome, Claim, Dispatch, NewTask, TaskState
from argus_celery.store import attempts, leases, projects, tasks
from argus_celery.store.tasks import Ending

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection


def retry(rt: Runtime, claim: Claim, task: NewTask, detail: str | None = None) -> None:
    """Store the new message of the run in hand, to be due after its delay. The claim is used up.

    Waits while the store is away; raises ``LeaseLost``, with nothing written, if the claim is not held any more.
    """
    check(rt, [task])
    wait_out(lambda: rt.window.note(rt.store, [task]))
    ours = wait_out(lambda: rt.store.transaction(lambda connection: _write(rt, connection, claim, task, detail)))
    send(rt, ours)


def park(rt: Runtime, claim: Claim, successors: Sequence[NewTask]) -> None:
    """The run has handed over to other tasks, the last of which will bear its id: record them, and wait for that one.

    The claim is used up. Waits while the store is away; raises ``LeaseLost`` with nothing written.
    """
    check(rt, successors)
    wait_out(lambda: rt.window.note(rt.store, successors))
    recorded = wait_out(lambda: past_rivals(lambda: rt.store.transaction(lambda c: _park(rt, c, claim, successors))))
    announce(rt, successors, recorded)
    send(rt, recorded.dispatches)


def _park(rt: Runtime, connection: Connection, claim: Claim, successors: Sequence[NewTask]) -> Recorded:
    store, id_ = rt.store, claim.task_id
    project = projects.shared(store, connection, {claim.project_id}).get(claim.project_id)
    if not leases.lock_held(store, connection, claim.holder, [(id_, claim.token)]):
        if attempts.ended_so(connection, id_, claim.token, AttemptOutcome.SUSPENDED):
            return Recorded()  # a commit whose answer was lost; its messages lapse by themselves
        raise lost(claim)
    attempts.append(store, connection, [id_], AttemptOutcome.SUSPENDED, "replaced")
    if project is None or not project.status.live:
        _cancel(rt, connection, claim)
        return Recorded()
    leases.hand_back(store, connection, [id_], due_at=leases.PARKED)
    return record(rt, connection, successors, look=True)


def _write(rt: Runtime, connection: Connection, claim: Claim, task: NewTask, detail: str | None) -> list[Dispatch]:
    store, id_ = rt.store, claim.task_id
    project = projects.shared(store, connection, {claim.project_id}).get(claim.project_id)
    if not leases.lock_held(store, connection, claim.holder, [(id_, claim.token)]):
        if attempts.ended_so(connection, id_, claim.token, AttemptOutcome.RETRIED):
            return []  # a commit whose answer was lost
        raise lost(claim)
    attempts.append(store, connection, [id_], AttemptOutcome.RETRIED, detail)
    if project is None or not project.status.live:
        _cancel(rt, connection, claim)
        return []
    return go_on_as(rt, connection, task)


def _cancel(rt: Runtime, connection: Connection, claim: Claim) -> None:
    leases.delete_all(connection, [claim.task_id])
    why = "the project was cancelled"
    tasks.end(rt.store, connection, [Ending(claim.task_id, claim.token, TaskState.CANCELLED, why, ran=True)])
