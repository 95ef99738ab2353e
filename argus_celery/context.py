"""What a running task can do: ``current``."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, TypeVar

from argus_celery.errors import BadStep, NoClaim
from argus_celery.flow import each, perform, step
from argus_celery.flow.checks import sleep_ms, wait_ms
from argus_celery.flow.guard import Guarding, guard
from argus_celery.flow.tick import due_of
from argus_celery.flow.wait import RAISES, SHORT_MS, nap
from argus_celery.records import AttemptInfo, Claim
from argus_celery.run import Run, in_hand, steps_here
from argus_celery.store import reports

T = TypeVar("T")

joined: ContextVar[str | None] = ContextVar("argus_project", default=None)
"""Name of the project that durable calls join here: ``with project:``."""


@contextmanager
def joining(project: str) -> Iterator[None]:
    """Durable calls inside the block join this project."""
    token = joined.set(project)
    try:
        yield
    finally:
        joined.reset(token)


class Current:
    """The claim of the durable task that is running here; in a direct call or eager mode there is none (falsy)."""

    def __bool__(self) -> bool:
        return in_hand.get() is not None

    @property
    def claim(self) -> Claim:
        """The claim itself; raises ``NoClaim`` where there is none."""
        return self._run().claim

    @property
    def task_id(self) -> str | None:
        run = in_hand.get()
        return run.claim.task_id if run else None

    @property
    def token(self) -> int | None:
        """The fencing token of this run: higher than that of every run before it."""
        run = in_hand.get()
        return run.claim.token if run else None

    @property
    def project(self) -> str | None:
        """Name of the project the task belongs to."""
        details = self._details()
        return details.project if details else None

    @property
    def key(self) -> str | None:
        """The idempotency key the task was enqueued with."""
        details = self._details()
        return details.key if details else None

    @property
    def due(self) -> datetime | None:
        """The instant a beat entry was due at that sent this task; None where no beat did, or with a key of its own."""
        return due_of(self.key)

    @property
    def attempt(self) -> int:
        """1 for the first run, and one more for each run that was started before."""
        details = self._details()
        return details.attempt if details else 1

    @property
    def previous(self) -> AttemptInfo | None:
        """How the last run ended, if there was one."""
        details = self._details()
        return details.previous if details else None

    @property
    def parents(self) -> dict[str, Any]:
        """Task id → result of each task that this one comes after, in the order of ``after``; read from the store.

        Of one that did not succeed, which ``if_failed="run"`` allows, the exception (``TaskRevokedError`` if it was
        revoked or expired); None where no result was kept, or it was forgotten.
        """
        run = in_hand.get()
        return dict(run.parents) if run else {}

    @property
    def lost(self) -> threading.Event:
        """Set once this run is known to have lost its lease. Look at it in long loops."""
        run = in_hand.get()
        return run.lost if run else threading.Event()

    def check(self) -> None:
        """Raise ``LeaseLost`` if another may run this task by now; does nothing where there is no claim."""
        run = in_hand.get()
        if run is not None:
            run.check()

    def progress(self) -> None:
        """Say that this run goes on, where the task has a ``progress_timeout``: at most one statement a quarter of it.

        Raises ``LeaseLost`` if the lease is known to be lost. Does nothing where there is no claim.
        """
        run = in_hand.get()
        if run is not None:
            run.progress()

    def transaction(self) -> Any:
        """A connection to the store's database whose writes and the fence check are one commit.

        All that the block asks of the store is part of it: steps, ``update_state``, and what it enqueues and sends,
        which leaves behind the commit. One inside another is a savepoint. Raises ``NoClaim`` outside a running durable
        task, ``LeaseLost`` with nothing written if the lease is gone.
        """
        return step.transaction(self._run().steps)

    def guard(self, session: Any = None, *, using: str | None = None) -> Guarding:
        """Let a session or connection of your own commit only while this run holds its lease; else ``LeaseLost``.

        It has to be to the store's database (``BadTransaction``). Of an SQLAlchemy handle, also an asynchronous one,
        every commit is guarded until the run or the ``with`` block ends; ``using=`` names Django's transaction under
        way. Without a claim nothing is guarded.
        """
        run = in_hand.get()
        if run is None:
            return Guarding(session if using is None else using)
        return guard(
            run.rt,
            run.claim,
            run.lost,
            # A thread that outlives its run is still that run; whoever uses the session next is not.
            lambda: not run.ended or in_hand.get() is run,
            lambda: run.steps.names.here.connection,
            session,
            using,
        )

    def step(self, name: str, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """``function(*args, **kwargs)``, once: its value is kept under this name, and a later run of the task reads it.

        What it returns is what is kept, as results are; of a coroutine function, await it. Without a claim the function
        is just called. Raises ``BadStep``, ``PayloadTooLarge``, and ``LeaseLost`` with nothing kept.
        """
        value: T = perform.run(steps_here(), name, function, args, kwargs)
        return value

    def each(
        self,
        iterable: Iterable[T] | AsyncIterable[T],
        *,
        name: str = "each",
        batch: int = 1,
        key: Callable[[T], Any] | None = None,
    ) -> each.Each[T]:
        """The items that no earlier run has finished. One is finished when the next is asked for.

        An item is known by its value (or by ``key``'s). ``batch`` finished items are recorded at once; after a kill
        up to ``batch - 1`` of them come again. Steps in the body of the loop belong to their item. ``BadStep`` is
        raised where it is looped over twice, or by two threads or coroutines.
        """
        return each.Each(steps_here(), iterable, name, batch, key)

    def sleep(
        self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0, name: str = "sleep"
    ) -> Any:
        """Wait for so long without a worker: the run ends, and the task begins again at its top when the time is over,
        with its steps read back. A wait of less than a second is sat out.

        In a coroutine ``await`` it. Without a claim a longer one raises ``NoClaim``; inside a step or a transaction
        ``BadStep`` is raised.
        """
        ms = sleep_ms(seconds, minutes, hours, days)
        run = in_hand.get()
        if run is not None and run.is_here():
            return run.waits.sleep(ms, name)
        if ms >= SHORT_MS:
            raise NoClaim(f"current.sleep() of {ms / 1000:g} s needs a worker to go on: call the task with delay()")
        return nap(ms)

    def sleep_until(self, instant: datetime, *, name: str = "sleep") -> Any:
        """The same until an instant, by the store's clock. Without a zone it is in the app's ``timezone``."""
        if not isinstance(instant, datetime):
            raise BadStep(f"current.sleep_until(...) takes a datetime, not {instant!r}")
        run = self._run_here()
        return run.waits.sleep_until(run.instant(instant), name)

    def wait_for(self, event: str, timeout: float | timedelta | None = None, default: Any = RAISES) -> Any:
        """The payload of an event that the project was told (``project.send``), or is waited for as ``sleep`` waits.

        ``timeout``: seconds, or a timedelta, after which ``WaitTimeout`` is raised, or the default returned. In a
        coroutine ``await`` it. Raises ``BadStep`` inside a step or a transaction, and ``NoClaim``.
        """
        ms = None if timeout is None else wait_ms("the timeout of current.wait_for(...)", timeout)
        return self._run_here().waits.wait_for(event, ms, default)

    def _details(self) -> reports.ClaimDetails | None:
        run = in_hand.get()
        return run.details if run else None

    def _run_here(self) -> Run:
        run = self._run()
        if not run.is_here():
            raise NoClaim("a task that is called by apply() has no worker to go on: call it with delay()")
        return run

    def _run(self) -> Run:
        run = in_hand.get()
        if run is None:
            raise NoClaim("there is no running durable task here: call it with delay() and a worker")
        return run


current = Current()
