"""Ends that the main process writes for a run: it acts as the run, under the same fence, through the same backend.

Celery's own writes from the main process know no claim, so that a child and its parent could both have their say.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from celery._state import _task_stack

from argus_celery.errors import LeaseLost
from argus_celery.flow.runtime import Runtime
from argus_celery.hooks.fence import Fenced, RunLost
from argus_celery.hooks.holder import holder
from argus_celery.hooks.outbox import Execution
from argus_celery.records import Claim
from argus_celery.run import in_hand
from argus_celery.store import leases


def fail(argus: Any, request: Any, error: BaseException, exc_info: Any) -> bool:
    """End the task as failed, with its errbacks; False if its run was first, or holds it no more."""
    granted = _claim_of(argus.runtime, request)
    if granted is None:
        return False
    with _acting(argus, request, granted) as backend:
        try:
            backend.mark_as_failure(
                request.id, error, exc_info.traceback, request._context, store_result=request.store_errors
            )
        except (RunLost, LeaseLost):
            return False
    return True


def _claim_of(rt: Runtime, request: Any) -> Claim | None:
    """The claim that the request's run holds, if it does."""
    if request.claimed is None:
        return None
    task_id, token = request.claimed
    rows = rt.store.transaction(lambda c: leases.lock_held(rt.store, c, holder(), [(task_id, token)]))
    if not rows:
        return None
    ttl = round((request.lease_ttl or rt.settings.lease_ttl) * 1000)
    return Claim(task_id, token, holder(), rows[0].project_id, ttl, time.monotonic())


@contextmanager
def _acting(argus: Any, request: Any, granted: Claim) -> Iterator[Fenced]:
    theirs = request.task.backend
    execution = Execution(argus.runtime, granted, argus=argus)
    before = in_hand.set(execution)
    _task_stack.push(request.task)
    request.task.request_stack.push(request._context)
    try:
        yield Fenced(request.app, theirs, execution)
    finally:
        request.task.request_stack.pop()
        _task_stack.pop()
        in_hand.reset(before)
