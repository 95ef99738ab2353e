"""Sending what a transaction has committed. A message that surely did not leave gives its row back at once."""

from __future__ import annotations

from collections.abc import Sequence

from argus_celery import signals
from argus_celery.errors import StoreUnavailable
from argus_celery.flow.runtime import Runtime
from argus_celery.records import Dispatch, Publish
from argus_celery.store import leases

PAUSE_AFTER_FAILURE_MS = 1000


def send(rt: Runtime, dispatches: Sequence[Dispatch], publish: Publish | None = None) -> None:
    """Publish in order, after the commit; a crash before or within is a lapse like any other."""
    if not dispatches:
        return
    failed = set((publish or rt.publish)(dispatches))
    if failed:
        _give_back(rt, [(one.task_id, one.token) for one in dispatches if one.task_id in failed])
    if signals.task_dispatched.receivers:
        for one in dispatches:
            if one.task_id not in failed:
                signals.task_dispatched.send(sender=rt.store.app_name, task_id=one.task_id, token=one.token)


def _give_back(rt: Runtime, rows: list[tuple[str, int]]) -> None:
    try:
        rt.store.transaction(lambda connection: leases.give_back(rt.store, connection, rows, PAUSE_AFTER_FAILURE_MS))
    except StoreUnavailable:
        return  # the rows lapse by themselves after the dispatch TTL
