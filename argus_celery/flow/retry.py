"""Retry and replace: the same row goes on with another message and due time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from argus_celery.flow import points
from argus_celery.flow.checks import check
from argus_celery.flow.complete import lost
from argus_celery.flow.end import end, follow_up
from argus_celery.flow.enqueue import Recorded, announce, past_rivals, record
from argus_celery.flow.outage import wait_out
from argus_celery.flow.publish import send
from argus_celery.flow.requeue import PROJECT_CANCELLED, dispatch_own, go_on_as, unrun
from argus_celery.flow.runtime import Runtime
from argus_celery.flow.wake import Released
from argus_celery.records import AttemptOutcome, Claim, NewChord, NewTask, TaskState
from argus_celery.store import attempts, chords, leases, projects, results, steps, tasks
from argus_celery.store.leases import Lease

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection


def retry(
    rt: Runtime,
    claim: Claim,
    task: NewTask,
    detail: str | None = None,
    before_sending: Callable[[], None] | None = None,
    *,
    retried: bool = True,
    said: bytes | None = None,
) -> None:
    """Store the new message of the run in hand, to be due after its delay, and what its result says until then.

    The claim is used up.

    Waits while the store is away; raises ``LeaseLost``, with nothing written, if the claim is not held any more.
    """
    check(rt, [task])
    wait_out(lambda: rt.window.note(rt.store, [task]))
    said = None if said is None else results.said_by(claim.token, said)
    done = wait_out(lambda: rt.store.transaction(lambda c: _write(rt, c, claim, task, detail, retried, said)))
    points.reached(points.Kind.RETRY, [task.name])
    if before_sending is not None:
        before_sending()
    follow_up(rt, done)


def park(rt: Runtime, claim: Claim, successors: Sequence[NewTask], new: Sequence[NewChord] = ()) -> None:
    """The run has handed over to other tasks, the last of which will bear its id: record them, and wait for that one.

    The claim is used up. Waits while the store is away; raises ``LeaseLost`` with nothing written.
    """
    check(rt, successors)
    wait_out(lambda: rt.window.note(rt.store, successors))
    recorded = wait_out(
        lambda: past_rivals(lambda: rt.store.transaction(lambda c: _park(rt, c, claim, successors, new)))
    )
    points.reached(points.Kind.ENQUEUE, (one.name for one in successors))
    if recorded.enqueued:
        announce(rt, successors, recorded)
    send(rt, recorded.dispatches)
    follow_up(rt, recorded.released)


def _park(
    rt: Runtime, connection: Connection, claim: Claim, successors: Sequence[NewTask], new: Sequence[NewChord]
) -> Recorded:
    store, id_ = rt.store, claim.task_id
    project = projects.shared(store, connection, {claim.project_id}).get(claim.project_id)
    held = leases.lock_held(store, connection, claim.holder, [(id_, claim.token)])
    if not held:
        if attempts.ended_so(connection, id_, claim.token, AttemptOutcome.SUSPENDED):
            return Recorded()  # a commit whose answer was lost; its messages lapse by themselves
        raise lost(claim)
    attempts.append(store, connection, [id_], AttemptOutcome.SUSPENDED, "replaced")
    steps.forget(connection, [id_])  # what comes under this id does other work
    if project is None or not project.status.live:
        return Recorded(released=end_cancelled_run(rt, connection, held[0]))
    tasks.note_attempt(connection, [id_])
    leases.hand_back(store, connection, [id_], due_at=leases.PARKED)
    let_in = dispatch_own(rt, connection, [], [id_]) if held[0].limited else []
    if new:
        chords.insert(store, connection, new)
    recorded = record(rt, connection, successors, look=True)
    return replace(recorded, dispatches=(*let_in, *recorded.dispatches))


def _write(
    rt: Runtime,
    connection: Connection,
    claim: Claim,
    task: NewTask,
    detail: str | None,
    retried: bool,
    said: bytes | None,
) -> Released:
    store, id_ = rt.store, claim.task_id
    project = projects.shared(store, connection, {claim.project_id}).get(claim.project_id)
    held = leases.lock_held(store, connection, claim.holder, [(id_, claim.token)])
    if not held:
        if attempts.ended_so(connection, id_, claim.token, AttemptOutcome.RETRIED):
            return Released()  # a commit whose answer was lost
        raise lost(claim)
    attempts.append(store, connection, [id_], AttemptOutcome.RETRIED, detail)
    if project is None or not project.status.live:
        return end_cancelled_run(rt, connection, held[0])
    if not retried:
        steps.forget(connection, [id_])  # what comes under this id does other work
    again = go_on_as(rt, connection, task, retried=retried, ran=True, said=said, limited=held[0].limited)
    return Released(again)


def end_cancelled_run(rt: Runtime, connection: Connection, row: Lease) -> Released:
    """The run has ended, its project was cancelled meanwhile: so is the task, whose lease is locked."""
    ending = unrun(rt, row, TaskState.CANCELLED, PROJECT_CANCELLED)
    return end(rt, connection, [replace(ending, ran=True)])
