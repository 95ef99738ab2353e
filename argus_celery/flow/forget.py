"""Forget: results are dropped when somebody says so, or when their time is over. Durable rows stay, and their keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from argus_celery.flow.runtime import Runtime
from argus_celery.store import expiry, pruning, results
from argus_celery.store.names import is_possible

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

BATCH = 500


def forget(rt: Runtime, ids: Sequence[str]) -> None:
    """The results of these tasks read as if there never was one."""
    known = [one for one in ids if is_possible(one)]
    rt.store.transaction(lambda connection: results.forget(connection, known))


def forget_old(rt: Runtime, age: float | None, age_of_failures: float | None) -> int:
    """Drop results and saved groups older than so many seconds (``None`` and 0: never); says how many.

    A transaction takes at most 500. What goes with ``argus_retention`` is ``flow.prune``'s.
    """
    if not age:
        return 0
    dropped = _all(rt, lambda c: pruning.drop_groups(rt.store, c, _ms(age), BATCH))
    return dropped + _old_results(rt, _ms(age), _ms(age_of_failures) if age_of_failures else None)


def _all(rt: Runtime, drop: Callable[[Connection], int]) -> int:
    dropped = batch = rt.store.transaction(drop)
    while batch == BATCH:
        batch = rt.store.transaction(drop)
        dropped += batch
    return dropped


def _old_results(rt: Runtime, age_ms: int, age_ms_of_failures: int | None) -> int:
    dropped, after = 0, ""

    def drop(connection: Connection) -> list[str]:
        ids = expiry.old_results(rt.store, connection, age_ms, age_ms_of_failures, after, BATCH)
        results.forget(connection, ids)
        return ids

    while ids := rt.store.transaction(drop):
        dropped, after = dropped + len(ids), ids[-1]
    return dropped


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
