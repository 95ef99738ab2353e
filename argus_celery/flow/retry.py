"""Retry and replace: the same row goes on with another message and due time."""

from __future__ import annotations

from sqlalchemy.engine import Connection

from argus_celery.flow.complete import lost
from argus_celery.flow.enqueue import check_payloads
from argus_celery.flow.outage import wait_out
from argus_celery.flow.publish import send
from argus_celery.flow.requeue import dispatch_own
from argus_celery.flow.runtime import Runtime
from argus_celery.records import AttemptOutcome, Claim, Dispatch, NewTask, TaskState
from argus_celery.store import attempts, leases, projects, tasks
from argus_celery.store.tasks import Ending


def retry(rt: Runtime, claim: Claim, task: NewTask, detail: str | None = None) -> None:
    """Store the new message of the run in hand, to be due after its delay. The claim is used up.

    Waits while the store is away; raises ``LeaseLost``, with nothing written, if the claim is not held any more.
    """
    check_payloads(rt, [task])
    wait_out(lambda: rt.window.note(rt.store, [task]))
    ours = wait_out(lambda: rt.store.transaction(lambda connection: _write(rt, connection, claim, task, detail)))
    send(rt, ours)


def _write(rt: Runtime, connection: Connection, claim: Claim, task: NewTask, detail: str | None) -> list[Dispatch]:
    store, id_ = rt.store, claim.task_id
    project = projects.shared(store, connection, {claim.project_id}).get(claim.project_id)
    if not leases.lock_held(store, connection, claim.holder, [(id_, claim.token)]):
        if attempts.ended_so(connection, id_, claim.token, AttemptOutcome.RETRIED):
            return []  # a commit whose answer was lost
        raise lost(claim)
    attempts.append(store, connection, [id_], AttemptOutcome.RETRIED, detail)
    if project is None or not project.status.live:
        leases.delete_all(connection, [id_])
        why = "the project was cancelled"
        tasks.end(store, connection, [Ending(id_, claim.token, TaskState.CANCELLED, why, ran=True)])
        return []
    queue = task.message.queue
    tasks.replace_message(connection, id_, task.name, queue, task.priority, task.message)
    leases.requeue_as(connection, id_, queue, task.priority, task.expires_at)
    leases.hand_back(store, connection, [id_], task.delay_ms or 0, task.due_at)
    return dispatch_own(rt, connection, [id_])
