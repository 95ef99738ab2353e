"""The fenced result backend of a running durable task: the store is told first, under the claim, and decides.

Only then does the user's own backend get the result; if that fails, or the process dies in between, the outcome stays
marked as undelivered and is paid later (``hooks.deliver``).
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from celery import Celery, states
from celery.exceptions import NotRegistered
from kombu.exceptions import EncodeError

from argus_celery.errors import LeaseLost
from argus_celery.hooks import outcome
from argus_celery.hooks.backend import is_foreign
from argus_celery.hooks.coroutines import refuse_coroutine
from argus_celery.hooks.impatient import impatient
from argus_celery.hooks.outbox import Execution, execution_here
from argus_celery.hooks.parts import part_of
from argus_celery.hooks.retrying import GoesOn
from argus_celery.records import Outcome

logger = logging.getLogger(__name__)


class RunLost(LeaseLost, EncodeError):
    """A lost lease met while the result is stored. Celery's tracer hands an ``EncodeError`` on to ``FencedInfo``."""


def fenced_backend(cls: Any, annotated: Any = None) -> property:
    """The ``backend`` property of a durable task: fenced in its own run, else the backend it would have had."""
    inherited = next((base.__dict__["backend"] for base in cls.__mro__ if "backend" in base.__dict__), None)
    own = annotated or (None if isinstance(inherited, property) else inherited)

    def backend(self: Any) -> Any:
        theirs = own or self.app.backend
        execution = execution_here()
        if execution is not None and execution.claim.task_id == self.request.id:
            return Fenced(self.app, theirs, execution)
        return theirs

    def set_backend(self: Any, value: Any) -> None:
        nonlocal own
        own = value

    return property(backend, set_backend)


class Fenced:
    """The result backend as the tracer of one run sees it; whatever does not end the run goes to the real one."""

    def __init__(self, app: Celery, theirs: Any, execution: Execution) -> None:
        self.app, self.theirs, self.execution = app, theirs, execution

    def __getattr__(self, name: str) -> Any:
        return getattr(self.theirs, name)

    def __reduce__(self) -> Any:
        return copy.copy, (self.theirs,)

    @property
    def is_foreign(self) -> bool:
        return is_foreign(self.theirs)

    def store_result(self, task_id: str, result: Any, state: str, *args: Any, **kwargs: Any) -> Any:
        """STARTED and states of the task's own. Raises ``LeaseLost``: a run that has lost its lease writes none."""
        if self._is_mine(task_id):
            self._hold(state)
        return self.theirs.store_result(task_id, result, state, *args, **kwargs)

    def _hold(self, state: str) -> None:
        """Our own backend asks in the transaction that writes; for another the store is asked before."""
        execution = self.execution
        if execution.lost.is_set():
            raise LeaseLost(f"task {execution.claim.task_id}: the lease is lost, state {state} was not stored")
        just_granted = state == states.STARTED and time.monotonic() < execution.claim.deadline
        if self.is_foreign and not just_granted:
            execution.check()

    def mark_as_done(
        self, task_id: str, result: Any, request: Any = None, store_result: bool = True, state: str = states.SUCCESS
    ) -> None:
        if not self._is_mine(task_id):
            self.theirs.mark_as_done(task_id, result, request, store_result, state)
        elif not self.execution.settled:
            self._succeed(task_id, result, request, store_result, state)

    def _succeed(self, task_id: str, result: Any, request: Any, store_result: bool, state: str) -> None:
        self.execution.leave_body()
        if self.execution.successor is not None:
            raise GoesOn
        refuse_coroutine(task_id, result, request)
        part = part_of(self.app, request, state, result)
        owed = is_foreign(self.theirs) and store_result
        ended = outcome.succeeded(self.execution, self.app, result, request, keep=store_result, owed=owed, part=part)

        def tell() -> None:
            if owed or not self.execution.is_counted:
                rest = self._uncounted(request)
                self._pay(lambda: self.theirs.mark_as_done(task_id, result, rest, store_result, state))

        self._end(ended, tell)

    def mark_as_failure(
        self,
        task_id: str,
        exc: Any,
        traceback: Any = None,
        request: Any = None,
        store_result: bool = True,
        call_errbacks: bool = True,
        state: str = states.FAILURE,
    ) -> None:
        if not self._is_mine(task_id):
            self.theirs.mark_as_failure(task_id, exc, traceback, request, store_result, call_errbacks, state)
        elif self.execution.settled:
            logger.error("argus: %s[%s] had ended when this came up: %r", request and request.task, task_id, exc)
        else:
            self._fail(task_id, exc, traceback, request, store_result, call_errbacks, state)

    def _fail(
        self, task_id: str, exc: Any, traceback: Any, request: Any, store: bool, call_errbacks: bool, state: str
    ) -> None:
        self.execution.leave_body()
        self.execution.forget_continuations()
        here: list[Any] = []
        if call_errbacks and request is not None and request.errbacks:
            here, sent = split_errbacks(self.theirs, request.errbacks)
            self._collect(sent, request, exc, traceback)
        owed, follows = is_foreign(self.theirs) and store, bool(request and request.chain)
        part = part_of(self.app, request, state, exc)
        ended = outcome.failed(self.execution, self.app, exc, traceback, request, owed=owed, follows=follows, part=part)

        def tell() -> None:
            if owed or follows or not self.execution.is_counted:
                rest = self._uncounted(request)
                self._pay(partial(self.theirs.mark_as_failure, task_id, exc, traceback, rest, store, False, state))
            if here:
                self._afterwards(lambda: self.theirs._call_task_errbacks(with_errbacks(request, here), exc, traceback))

        self._end(ended, tell)

    def _collect(self, errbacks: list[Any], request: Any, exc: Any, traceback: Any) -> None:
        if errbacks:
            with self.execution.collecting():
                self.theirs._call_task_errbacks(with_errbacks(request, errbacks), exc, traceback)

    def _uncounted(self, request: Any) -> Any:
        """The request without what the completion has counted already."""
        return with_changes(request, chord=None) if self.execution.is_counted and request else request

    # --- the store, and then the user's backend --------------------------------------------------------------------

    def _is_mine(self, task_id: str) -> bool:
        return task_id == self.execution.claim.task_id

    def _end(self, ended: Outcome, tell: Callable[[], None]) -> None:
        self._ended(lambda: self.execution.complete(ended, tell))

    def _ended(self, write: Callable[[], None]) -> None:
        try:
            write()
        except LeaseLost as error:
            logger.warning("argus: %s", error)
            raise RunLost(str(error)) from None

    def _pay(self, mark: Callable[[], Any]) -> None:
        claim = self.execution.claim
        if self._afterwards(mark):
            self.execution.argus.receipts.note(claim.task_id, claim.token)

    def _afterwards(self, call: Callable[[], Any]) -> bool:
        """The outcome stands; what cannot be done now must not look like another one."""
        try:
            with impatient(self.theirs):
                call()
        except Exception:
            logger.exception(
                "argus: the outcome of %s is stored; telling the result backend failed", self.execution.claim.task_id
            )
            return False
        return True


def split_errbacks(backend: Any, errbacks: list[Any]) -> tuple[list[Any], list[Any]]:
    """(called in this process, with request, error and traceback; sent as tasks, with the id) as Celery decides it."""
    here: list[Any] = []
    sent: list[Any] = []
    for errback in errbacks:
        (here if _is_called_here(backend, errback) else sent).append(errback)
    return here, sent


def _is_called_here(backend: Any, errback: Any) -> bool:
    signature = backend.app.signature(errback)
    try:
        task = signature.type
    except NotRegistered:
        return False
    header = getattr(task, "__header__", None)
    return header is not None and not isinstance(header, partial) and backend._errback_arity_greater(signature, 1)


def with_errbacks(request: Any, errbacks: list[Any]) -> Any:
    """The same request with these errbacks only."""
    return with_changes(request, errbacks=errbacks)


def with_changes(request: Any, **changes: Any) -> Any:
    twin = copy.copy(request)
    for name, value in changes.items():
        setattr(twin, name, value)
    return twin
