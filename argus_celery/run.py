"""A durable body that is running in this process, and the registry of all that are."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from argus_celery.errors import LeaseLost, NoClaim, StoreUnavailable
from argus_celery.flow import renew
from argus_celery.flow.outage import wait_out
from argus_celery.flow.progress import Progress
from argus_celery.flow.runtime import Runtime
from argus_celery.flow.step import Codec, Steps
from argus_celery.flow.wait import Waits
from argus_celery.records import Claim
from argus_celery.store import reports, results


@dataclass(eq=False)
class Run:
    """One durable body that is running in this process."""

    rt: Runtime
    claim: Claim
    lost: threading.Event = field(default_factory=threading.Event)
    thread_ident: int = field(default_factory=lambda: threading.get_ident())  # gevent may put its own in place
    greenlet: Any = None
    in_body: bool = False
    """Only while this is set, under ``lock``, may an exception be thrown into the run."""
    told: bool = False
    """``LeaseLost`` was thrown in: once is enough, the body may be handling it."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    ended: bool = False
    settled: bool = False
    """The store knows how this run ended, or that it has lost its lease."""
    stop: Callable[[BaseException], None] | None = None
    """Stops a body that is a coroutine: it is cancelled, and the run ends with this error. From any thread."""
    shown: Progress = field(default_factory=lambda: Progress(None))

    def __post_init__(self) -> None:
        self.steps = Steps(self.rt, self.claim, self.lost, Codec(self.encode, self.decode), self)
        self.waits = Waits(self.steps, lambda: self.in_body)

    def is_here(self) -> bool:
        """Is the caller in this body, and not in that of a task which it has called by ``apply()``?"""
        return True

    def encode(self, value: Any) -> bytes:
        """A step's value as it is kept: as a result is."""
        raise NotImplementedError

    def decode(self, data: bytes) -> Any:
        raise NotImplementedError

    def instant(self, at: datetime) -> int:
        """In milliseconds since the epoch."""
        raise NotImplementedError

    @cached_property
    def details(self) -> reports.ClaimDetails | None:
        return wait_out(lambda: reports.claim_details(self.rt.store, self.claim.task_id))

    @cached_property
    def parents(self) -> dict[str, Any]:
        """The results of the tasks that this one comes after, in the order of ``after``."""
        rt, task_id = self.rt, self.claim.task_id
        ids = wait_out(lambda: reports.parents_of(rt.store, task_id))
        rows = wait_out(lambda: results.read(rt.store, ids)) if ids else {}
        return {id_: self.result_of(id_, rows.get(id_)) for id_ in ids}

    def result_of(self, task_id: str, row: results.ResultRow | None) -> Any:
        """What this row says a task has returned, or has failed with."""
        raise NotImplementedError

    def check(self) -> None:
        """Ask the store whether the lease still stands, and renew it. A store that is away says neither.

        Inside a transaction of the run's own it stands: its row is locked, and is moved on before the commit.
        """
        if not self.lost.is_set() and self.steps.names.here.connection is None:
            held = (self.claim.task_id, self.claim.token)
            with suppress(StoreUnavailable):
                if held in renew.renew(self.rt, self.claim.holder, [held], progress=True).lost:
                    self.lost.set()
                self.shown.written()
        if self.lost.is_set():
            raise self._lost()

    def _lost(self) -> LeaseLost:
        return LeaseLost(f"task {self.claim.task_id}: the lease with token {self.claim.token} is lost")

    def begins(self, what: str) -> None:
        """Raise if the caller has outlived the run, its lease is lost, or it has reached a wait."""
        self.check_open(what)
        if self.lost.is_set():
            raise self._lost()
        self.waits.check()

    def check_open(self, what: str) -> None:
        """Raise ``NoClaim`` in a thread or a task of asyncio's that has outlived the body."""
        if not self.in_body and not self._is_own_thread():
            raise NoClaim(
                f"task {self.claim.task_id}: {what} comes too late, its run with token {self.claim.token} is over:"
                " a body has to await the tasks and join the threads it starts"
            )

    def is_behind(self) -> bool:
        """Is the caller a handler of Celery's behind the body?"""
        return not self.in_body and self._is_own_thread()

    def _is_own_thread(self) -> bool:
        return self.thread_ident == threading.get_ident()

    def progress(self) -> None:
        """The run goes on: said to the store where it is time."""
        if self.lost.is_set() or self.shown.is_due:
            self.check()


running: weakref.WeakValueDictionary[tuple[str, int], Run] = weakref.WeakValueDictionary()
"""(task id, claim token) → the run of this process that holds it."""

in_hand: ContextVar[Run | None] = ContextVar("argus_run", default=None)
"""The run whose body this is."""


def steps_here() -> Steps | None:
    """Where steps are recorded; None where a function is just called, also in what follows the end of a run."""
    run = in_hand.get()
    return None if run is None or run.is_behind() or not run.is_here() else run.steps
