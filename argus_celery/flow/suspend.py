"""Suspend: a run ends to wait for an instant or an event, and its task goes on in a later run.

One fenced transaction notes the wait as a step, hands the lease back and ends the attempt: nothing is lost in between,
and no worker is held. Who suspends locks the event before its own lease, as who tells it does: either sees the other.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from argus_celery import signals
from argus_celery.flow import points, verdict
from argus_celery.flow.complete import lost
from argus_celery.flow.end import follow_up
from argus_celery.flow.outage import wait_out
from argus_celery.flow.requeue import dispatch_own
from argus_celery.flow.retry import end_cancelled_run
from argus_celery.flow.runtime import Runtime
from argus_celery.flow.wake import Released
from argus_celery.records import AttemptOutcome, Claim
from argus_celery.store import attempts, events, leases, projects, steps, tasks, waits

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection


@dataclass(frozen=True, slots=True)
class Wait:
    """What a run ends for."""

    step: str
    """The full name of the step that notes it."""
    event: str | None = None
    delay_ms: int | None = None
    """From when it was reached; excludes ``until``. Neither: for ever."""
    until: int | None = None
    """An instant of the store's clock."""
    reached: float = field(default_factory=time.monotonic)

    def __str__(self) -> str:
        return "sleeps" if self.event is None else f"waits for {self.event!r}"

    def times(self, now: int) -> tuple[int, int | None]:
        """Since when, and until, by the store's clock. What the body did since is part of the wait."""
        since = now - round((time.monotonic() - self.reached) * 1000)
        return since, self.until if self.delay_ms is None else since + self.delay_ms


def suspend(rt: Runtime, claim: Claim, wait: Wait) -> None:
    """End the run for this wait. The claim is used up; no loss and no retry is charged.

    Waits while the store is away. Raises ``LeaseLost``, with nothing written, if the claim is not held any more.
    """
    released = wait_out(lambda: rt.store.transaction(lambda connection: _write(rt, connection, claim, wait)))
    points.reached(points.Kind.WAIT, [wait.step])
    signals.task_suspended.send(
        sender=rt.store.app_name, task_id=claim.task_id, token=claim.token, waits_for=wait.event
    )
    follow_up(rt, released)


def _write(rt: Runtime, connection: Connection, claim: Claim, wait: Wait) -> Released:
    store, id_ = rt.store, claim.task_id
    project = projects.shared(store, connection, {claim.project_id}).get(claim.project_id)
    event = None if wait.event is None else events.lock(store, connection, claim.project_id, wait.event)
    held = leases.lock_held(store, connection, claim.holder, [(id_, claim.token)])
    if not held:
        if attempts.ended_so(connection, id_, claim.token, AttemptOutcome.SUSPENDED):
            return Released()  # a commit whose answer was lost; its message lapses by itself
        raise lost(claim)
    now = store.read_now(connection)
    since, until = wait.times(now)
    attempts.append(store, connection, [id_], AttemptOutcome.SUSPENDED, _in_words(wait, until))
    if project is None or not project.status.live:
        return end_cancelled_run(rt, connection, held[0])
    tasks.note_attempt(connection, [id_])
    steps.put(connection, claim, wait.step, verdict.pending(until), now)
    due_at = now if event is not None else waits.NEVER if until is None else until
    leases.hand_back(store, connection, [id_], due_at=due_at, begun=True)
    if event is None:
        waits.note(store, connection, id_, claim.project_id, wait.event or waits.ASLEEP, since, until)
    return Released(dispatch_own(rt, connection, [id_], [id_] if held[0].limited else []))


def _in_words(wait: Wait, until: int | None) -> str:
    end = "" if until is None else f" until {datetime.fromtimestamp(until / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    return f"{wait}{end}"
