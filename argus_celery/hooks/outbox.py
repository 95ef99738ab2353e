"""What a run has said is to follow it: kept until the completing transaction, so that a run which lost its lease
leaves nothing behind.

Once the body has returned, Celery publishes callbacks, the rest of the chain and the chord's body, and only then stores
the result. While the outbox is *collecting*, what is published here is kept instead: durable tasks are recorded by the
completing transaction, others are sent after its commit. A publish under the run's own id (retry, replace) is kept too:
it is what the task goes on with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from celery._state import get_current_task
from kombu.utils.encoding import ensure_bytes

from argus_celery import signals
from argus_celery.errors import BadStep, LeaseLost
from argus_celery.flow import complete, release, retry, suspend
from argus_celery.flow.outage import wait_out
from argus_celery.flow.suspend import Wait
from argus_celery.hooks.clock import local_milliseconds
from argus_celery.records import Claim, Message, NewChord, NewTask, Outcome
from argus_celery.run import Run, in_hand, running
from argus_celery.store.results import ResultRow


@dataclass(eq=False)
class Execution(Run):
    """A run with its outbox."""

    argus: Any = None
    continuations: list[NewTask] = field(default_factory=list)
    plain: list[Message] = field(default_factory=list)
    chords: list[NewChord] = field(default_factory=list)
    added: dict[str, str] = field(default_factory=dict)
    """Tasks that the body has added to a chord and not sent yet, and the chord."""
    successor: NewTask | None = None
    handed_on: bool = False
    """The body was replaced by something whose last task bears this task's id."""
    leaves_store: bool = False
    """What replaces it is not durable."""
    is_collecting: bool = False
    said: tuple[str, bytes] | None = None
    """The last state that the body has given itself, as it was stored."""
    is_counted: bool = True
    """The completion has counted the run's part of a chord; else the result backend counts it."""
    turn: tuple[int, int] = (0, 0)
    """The replacement and the retry that this run is of; a run repeated after a loss has the same."""
    warned: bool = False
    """It was said that this body does not call what its first run called."""

    @contextmanager
    def collecting(self) -> Iterator[None]:
        before, self.is_collecting = self.is_collecting, True
        try:
            yield
        finally:
            self.is_collecting = before

    def forget_continuations(self) -> None:
        """A success that could not be stored is a failure: what followed the success does not happen."""
        self.continuations.clear()
        self.plain.clear()
        self.chords.clear()

    def result_of(self, task_id: str, row: ResultRow | None) -> Any:
        return self.argus.results.meta_of(task_id, row)["result"]

    def is_here(self) -> bool:
        task = get_current_task()
        return task is None or task.request.id in (None, self.claim.task_id)

    def encode(self, value: Any) -> bytes:
        return bytes(ensure_bytes(self.argus.results.encode(value)))

    def decode(self, data: bytes) -> Any:
        return self.argus.results.decode(data)

    def instant(self, at: datetime) -> int:
        return local_milliseconds(at, self.argus.app, "current.sleep_until(...)", BadStep)

    def leave_body(self) -> None:
        """From here on nothing is thrown into the run."""
        with self.lock:
            self.in_body = False

    # --- the ends of a run -----------------------------------------------------------------------------------------

    def complete(self, outcome: Outcome, tell: Callable[[], None] | None = None) -> None:
        """``tell`` is called before a chord goes on: whoever sees its body finds the results of its header."""
        with self._settling():
            written = complete.complete(self.rt, self.claim, outcome)
        self.is_counted = not written.uncounted
        self.argus.publisher.send_plain(self.plain)
        if tell is not None:
            tell()
        self.argus.fire(written.ready)

    def go_on(
        self,
        detail: str,
        before_sending: Callable[[], None] | None = None,
        *,
        retried: bool,
        said: bytes | None = None,
    ) -> None:
        """The same task goes on with the message that was published under its id, and until then says so."""
        assert self.successor is not None
        with self._settling():
            retry.retry(self.rt, self.claim, self.successor, detail, before_sending, retried=retried, said=said)

    def park(self) -> None:
        """What the body was replaced by is recorded; its last task, to come under this id, is waited for."""
        with self._settling():
            retry.park(self.rt, self.claim, self.continuations, self.chords)
        self.argus.publisher.send_plain(self.plain)

    def suspend(self, wait: Wait) -> None:
        """The body waits: the task goes on in a later run."""
        with self._settling():
            suspend.suspend(self.rt, self.claim, wait)

    def give_back(self, detail: str, delay_ms: int = 0) -> None:
        with self._settling():
            held = (self.claim.task_id, self.claim.token)
            if not wait_out(lambda: release.release(self.rt, self.claim.holder, [held], detail, delay_ms)):
                raise complete.lost(self.claim)

    @contextmanager
    def _settling(self) -> Iterator[None]:
        try:
            yield
        except LeaseLost:
            self.settled = True
            self._note_lost()
            raise
        self.settled = True

    def _note_lost(self) -> None:
        """Found out by a write that was refused, unless the run was told before."""
        if not self.lost.is_set():
            self.lost.set()
            claim, sender = self.claim, self.rt.store.app_name
            signals.lease_lost.send(sender=sender, task_id=claim.task_id, token=claim.token, holder=claim.holder)


def execution_here() -> Execution | None:
    """The durable run whose code this is."""
    run = in_hand.get()
    return run if isinstance(run, Execution) and not run.ended else None


def run_of(task_id: str) -> Execution | None:
    """The run of this task that is in hand in this process: in any of its threads."""
    here = execution_here()
    if here is not None and here.claim.task_id == task_id:
        return here
    runs = [run for (id_, _), run in list(running.items()) if id_ == task_id and isinstance(run, Execution)]
    return max(runs, key=lambda run: run.claim.token, default=None)


@contextmanager
def gathering(argus: Any, claim: Claim) -> Iterator[Execution]:
    """Collect what is published for a task that has no run here, or none any more."""
    execution = Execution(argus.runtime, claim, argus=argus)
    before = in_hand.set(execution)
    try:
        with execution.collecting():
            yield execution
    finally:
        in_hand.reset(before)


def outbox_here() -> Execution | None:
    """The run whose end Celery may publish for here; not that of a task which it has called eagerly."""
    execution = execution_here()
    if execution is None or execution.settled:
        return None
    if execution.is_collecting:
        return execution
    task = get_current_task()
    return execution if task is not None and task.request.id == execution.claim.task_id else None
