"""How who waits for a task is told that it has ended, at no cost while nobody waits.

Only on PostgreSQL. A process that waits listens, and says so by a lock that many may hold shared. Whoever ends a task
tries that lock in the statement that deletes the lease, and so knows, for no round trip more, whether to tell anybody.
It tells after its commit: a transaction that notifies keeps all others that do from committing beside it.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from argus_celery.store.engine import Store
from argus_celery.store.waking import Waking, waking

CHANNEL = "argus_ended"

SHORTEST, LONGEST = 0.005, 0.25
"""Seconds between two looks where the database tells nobody, by how long nothing has come."""

_LOCK = "16755, 1"
"""An advisory lock of a class of its own, beside that of projects."""

_AWAITED = f"CASE WHEN pg_try_advisory_lock({_LOCK}) THEN NOT pg_advisory_unlock({_LOCK}) ELSE true END"

_TELL = sa.text("SELECT count(pg_notify(:channel, ended.id)) FROM unnest(CAST(:ids AS text[])) AS ended (id)")


def awaited() -> sa.ColumnElement[bool]:
    """Does some process wait for ends? (Also true while another asks in the same microsecond, which does no harm.)"""
    return sa.literal_column(_AWAITED, sa.Boolean)


def tell(store: Store, ids: Sequence[str]) -> None:
    """These tasks have ended, and it is committed."""
    store.statement(lambda connection: connection.execute(_TELL, {"channel": CHANNEL, "ids": list(ids)}))


def hearing(store: Store) -> Waking:
    """Hears of ends. Where the database tells nobody, it follows a rhythm."""
    found = waking(store, CHANNEL, first=f"SELECT pg_advisory_lock_shared({_LOCK})")
    found.shortest, found.longest = min(found.shortest, SHORTEST), min(found.longest, LONGEST)
    return found
