"""Paying debts: outcomes that the user's own result backend, or what follows a task, are still owed.

Whoever sweeps pays. Telling a backend twice is harmless; what follows is recorded as the debt is struck out, once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from celery import Celery
from celery.app.task import Context, get_actual_ignore_result
from celery.exceptions import TaskRevokedError
from celery.result import result_from_tuple
from kombu.compression import decompress
from kombu.serialization import loads, prepare_accept_content

from argus_celery.errors import ProjectClosed, StoreUnavailable, TaskAbandoned, TaskDead
from argus_celery.flow import deliver
from argus_celery.flow.deliver import Undelivered
from argus_celery.hooks.chords import is_repeated
from argus_celery.hooks.fence import split_errbacks, with_errbacks
from argus_celery.hooks.impatient import impatient
from argus_celery.hooks.outbox import Execution, gathering
from argus_celery.hooks.unstarted import fail_unstarted, following
from argus_celery.records import Claim, Message, TaskState

GRACE_MS = 10_000
"""For which a run that has just ended is left to tell its result backend by itself."""

PATIENCE = 1.0
"""Seconds that a payment may fail for, before the rest waits for the next time: the backend is away."""

logger = logging.getLogger(__name__)


def pay_debts(argus: Any, limit: int = 100) -> int:
    """Pay up to ``limit`` debts and return how many were paid here. Raises ``StoreUnavailable``."""
    paid = 0
    for debt in deliver.pending(argus.runtime, limit, GRACE_MS):
        began = time.monotonic()
        if _paid(argus, debt):
            paid += 1
        elif time.monotonic() - began > PATIENCE:
            break
    return paid


def _paid(argus: Any, debt: Undelivered) -> bool:
    before = is_repeated.set(True)
    try:
        payment = _Payment(argus, debt)
        with impatient(payment.backend):
            return payment.pay()
    except StoreUnavailable:
        raise
    except Exception:
        logger.exception("argus: the outcome of %s[%s] could not be delivered yet", debt.name, debt.task_id)
        deliver.give_way(argus.runtime, debt)
        return False
    finally:
        is_repeated.reset(before)


class _Payment:
    """One debt, with what the backend is to be told."""

    def __init__(self, argus: Any, debt: Undelivered) -> None:
        self.argus, self.debt = argus, debt
        app: Celery = argus.app
        self.task = app.tasks.get(debt.name)
        self.backend = self.task.backend if self.task is not None else app.backend
        self.request = request_of(app, debt.message)
        self.keep = self.task is None or not get_actual_ignore_result(self.task, self.request)

    def pay(self) -> bool:
        if self.debt.state is TaskState.DEAD:
            return self._bury()
        self._tell()
        return deliver.done(self.argus.runtime, self.debt.task_id, self.debt.token)

    def _tell(self) -> None:
        debt, backend = self.debt, self.backend
        left = self._left()
        if debt.state is TaskState.SUCCEEDED:
            backend.mark_as_done(debt.task_id, left.get("result"), self.request, self.keep)
        elif debt.state is TaskState.FAILED:
            unknown = TaskAbandoned if debt.abandoned else Exception
            error = left.get("result") or unknown(debt.error)
            backend.mark_as_failure(debt.task_id, error, left.get("traceback"), self.request, self.keep, False)
        else:
            backend.mark_as_revoked(debt.task_id, debt.error or "", self.request, self.keep)
            fail_unstarted(backend, self.request.chain, TaskRevokedError(debt.error or ""))

    def _left(self) -> dict[str, Any]:
        """What the run has left, with what only the run knew put into the request."""
        if not self.debt.result:
            return {}
        meta: dict[str, Any] = self.argus.results.decode_result(self.debt.result)
        self.request.children[:] = [result_from_tuple(child, self.argus.app) for child in meta.get("children") or ()]
        self.request.hostname = meta.get("worker")
        return meta

    def _bury(self) -> bool:
        """A dead letter: failed for good, and its errbacks are called, once."""
        error = TaskDead(self.debt.error)
        here, sent = split_errbacks(self.backend, list(self.request.errbacks or ()))
        claim = Claim(self.debt.task_id, self.debt.token, "", self.debt.project_id, 0, 0.0)
        with gathering(self.argus, claim) as outbox:
            if sent:
                self.backend._call_task_errbacks(with_errbacks(self.request, sent), error, None)
        self.backend.mark_as_failure(self.debt.task_id, error, None, self.request, self.keep, False)
        if not self._settled(outbox):
            return False
        self.argus.publisher.send_plain(outbox.plain)
        if here:
            self.backend._call_task_errbacks(with_errbacks(self.request, here), error, None)
        return True

    def _settled(self, outbox: Execution) -> bool:
        settle: Callable[..., bool] = deliver.done
        rt, debt = self.argus.runtime, self.debt
        try:
            return settle(rt, debt.task_id, debt.token, outbox.continuations)
        except ProjectClosed:
            # The project ended with its dead letter; who waits for the errback is told all the same.
            project_id = self.argus.default_project_id()
            moved = [replace(task, project_id=project_id, inside=False) for task in outbox.continuations]
            return settle(rt, debt.task_id, debt.token, moved)


def leads_to(app: Celery, message: Message) -> list[str]:
    """The ids of the tasks that are to follow the one with this message; none if it cannot be read."""
    try:
        return following(request_of(app, message))
    except Exception:
        logger.warning("argus: what follows %s cannot be read", message.headers.get("id"), exc_info=True)
        return []


def same_call(app: Celery, one: Message, other: Message) -> bool:
    """Do they call the same task with the same arguments? A chain behind it has other ids at each call."""
    if one.headers.get("task") != other.headers.get("task"):
        return False
    if one.body == other.body:
        return True
    try:
        first, second = request_of(app, one), request_of(app, other)
    except Exception:
        return False  # what cannot be read is taken for what it looks like
    return bool(first.args == second.args and first.kwargs == second.kwargs)


def request_of(app: Celery, message: Message) -> Context:
    """The request of a stored message, as far as result backends and errbacks look at it."""
    body = message.body
    if message.headers.get("compression"):
        body = decompress(body, message.headers["compression"])
    accept = prepare_accept_content(app.conf.accept_content)
    args, kwargs, embed = loads(body, message.content_type, message.content_encoding, accept=accept)
    where = {
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "priority": message.properties.get("priority"),
    }
    # Where an ``rpc://`` result goes.
    answer = {name: message.properties.get(name) for name in ("reply_to", "correlation_id")}
    return Context({**message.headers, **embed, **answer}, args=args, kwargs=kwargs, delivery_info=where)
