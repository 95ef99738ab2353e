"""Guard: a transaction of the user's own commits only while the run that guards it holds its lease."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import TYPE_CHECKING, Any

from argus_celery.errors import BadTransaction
from argus_celery.flow.complete import lost
from argus_celery.flow.runtime import Runtime
from argus_celery.records import Claim
from argus_celery.store import leases
from argus_celery.store.outer.django import guard_django

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection


class Guarding:
    """What ``current.guard`` gives: as a context manager it ends the guard, for transactions that begin behind it."""

    def __init__(self, handle: Any, end: Callable[[], None] = lambda: None) -> None:
        self._handle, self._end = handle, end

    def __enter__(self) -> Any:
        return self._handle

    def __exit__(self, *_: object) -> None:
        self._end()


def guard(
    rt: Runtime,
    claim: Claim,
    told: Event,
    applies: Callable[[], bool],
    own: Callable[[], Connection | None],
    session: Any = None,
    using: str | None = None,
) -> Guarding:
    """Fence the commits of this session or connection, or Django's transaction under way on this database.

    Just before each, the lease is locked through that very connection: a take-over waits for the commit, or has won.
    Then ``LeaseLost`` is raised, ``told`` is set, and nothing is committed. ``own`` is the connection of the run's
    own transaction, if the caller is inside it.
    """
    if (session is None) == (using is None):
        raise BadTransaction(
            "guard() takes a session or connection of SQLAlchemy's, or using=, which names a database of Django's:"
            " give one of them"
        )

    def hold(connection: Connection) -> None:
        if own() not in (None, connection):
            raise BadTransaction(
                f"task {claim.task_id}: a guarded session cannot commit inside current.transaction(), which has locked"
                " the lease: commit it behind the block, or write by the block's own connection"
            )
        if not leases.fence(rt.store, connection, claim.task_id, claim.token, claim.holder):
            told.set()
            raise lost(claim)

    if using is not None:
        guard_django(rt.store, using, hold)
        return Guarding(using)
    from argus_celery.store.outer.guards import Guard, guard_alchemy

    return Guarding(session, guard_alchemy(session, Guard(rt.store, (claim.task_id, claim.token), hold, applies)))
