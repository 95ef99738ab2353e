"""What a running task can do: ``current``, and the registry of the runs of this process."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from argus_celery.errors import LeaseLost, NoClaim, StoreUnavailable
from argus_celery.flow import renew
from argus_celery.flow.outage import wait_out
from argus_celery.flow.runtime import Runtime
from argus_celery.flow.transaction import transaction
from argus_celery.records import AttemptInfo, Claim
from argus_celery.store import reports


@dataclass(eq=False)
class Run:
    """One durable body that is running in this process."""

    rt: Runtime
    claim: Claim
    lost: threading.Event = field(default_factory=threading.Event)
    thread_ident: int = field(default_factory=threading.get_ident)
    greenlet: Any = None
    in_body: bool = False
    """Only while this is set, under ``lock``, may an exception be thrown into the run."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    ended: bool = False

    @cached_property
    def details(self) -> reports.ClaimDetails | None:
        return wait_out(lambda: reports.claim_details(self.rt.store, self.claim.task_id))

    def check(self) -> None:
        """Ask the store whether the lease still stands, and renew it. A store that is away says neither."""
        if not self.lost.is_set():
            held = (self.claim.task_id, self.claim.token)
            with suppress(StoreUnavailable):
                if held in renew.renew(self.rt, self.claim.holder, [held]).lost:
                    self.lost.set()
        if self.lost.is_set():
            raise LeaseLost(f"task {self.claim.task_id}: the lease with token {self.claim.token} is lost")


running: weakref.WeakValueDictionary[tuple[str, int], Run] = weakref.WeakValueDictionary()
"""(task id, claim token) → the run of this process that holds it."""

in_hand: ContextVar[Run | None] = ContextVar("argus_run", default=None)
"""The run whose body this is."""

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
    def lost(self) -> threading.Event:
        """Set once this run is known to have lost its lease. Look at it in long loops."""
        run = in_hand.get()
        return run.lost if run else threading.Event()

    def check(self) -> None:
        """Raise ``LeaseLost`` if another may run this task by now; does nothing where there is no claim."""
        run = in_hand.get()
        if run is not None:
            run.check()

    def transaction(self) -> Any:
        """A connection to the store's database whose writes and the fence check are one commit.

        Raises ``NoClaim`` outside a running durable task, ``LeaseLost`` with nothing written if the lease is gone.
        """
        run = self._run()
        return transaction(run.rt, run.claim)

    def _details(self) -> reports.ClaimDetails | None:
        run = in_hand.get()
        return run.details if run else None

    def _run(self) -> Run:
        run = in_hand.get()
        if run is None:
            raise NoClaim("there is no running durable task here: call it with delay() and a worker")
        return run


current = Current()
