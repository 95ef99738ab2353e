"""A running task's own transaction: its writes and the fence check in one commit, in the store's database."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from argus_celery.errors import StoreError
from argus_celery.flow import points
from argus_celery.flow.afterwards import afterwards
from argus_celery.flow.complete import lost
from argus_celery.flow.runtime import Runtime
from argus_celery.records import Claim
from argus_celery.store import leases, projects
from argus_celery.store.outer import outer_of

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection


@contextmanager
def transaction(rt: Runtime, claim: Claim) -> Iterator[Connection]:
    """Lock the lease, run the caller's writes, commit. A take-over waits for the commit or has won already.

    What the block asks of the store is part of it, for on a connection of its own it would wait for this one; what is
    to be published leaves behind the commit. The project is locked against steering too. Raises ``LeaseLost`` with
    nothing written if the claim is not held. The lapse is moved on, as by progress, at the lock and before the commit:
    others see it with the commit. On SQLite this holds the only writer, renewals included, and is refused once it has
    taken half the TTL.
    """
    began = time.monotonic()
    with rt.store.open() as connection:
        # Before the lease, as everywhere: a task that is enqueued in here needs the project's lock.
        projects.hold(rt.store, connection, claim.project_id)
        _extend(rt, connection, claim)
        with outer_of(rt.store, connection).inside():
            afterwards(rt, (), partial(points.reached, points.Kind.TRANSACTION, [claim.task_id]))
            yield connection
        _check_duration(rt, claim, time.monotonic() - began)
        _extend(rt, connection, claim)


def _extend(rt: Runtime, connection: Connection, claim: Claim) -> None:
    if not leases.extend(rt.store, connection, claim.task_id, claim.token, claim.holder):
        raise lost(claim)


def _check_duration(rt: Runtime, claim: Claim, seconds: float) -> None:
    limit = claim.ttl_ms / 2000
    if rt.store.dialect_name == "sqlite" and seconds > limit:
        raise StoreError(
            f"task {claim.task_id}: a transaction of {seconds:.1f} s on an SQLite store keeps every other writer out;"
            f" more than {limit:g} s (half of argus_lease_ttl) is rolled back. Compute first, then write"
        )
