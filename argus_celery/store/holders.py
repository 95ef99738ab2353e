"""Rows of holders: one per worker incarnation, with what proves it dead."""

from __future__ import annotations

from dataclasses import asdict

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.records import HolderFacts
from argus_celery.store.engine import Store
from argus_celery.store.schema import holders, leases


def register(store: Store, connection: Connection, facts: HolderFacts) -> None:
    """Note a worker that has just started; doing it twice changes nothing."""
    row = asdict(facts)
    if not seen(store, connection, facts.id):
        connection.execute(sa.insert(holders).values(**row, started_at=store.now, seen_at=store.now))


def seen(store: Store, connection: Connection, holder: str) -> bool:
    statement = sa.update(holders).where(holders.c.id == holder).values(seen_at=store.now)
    return connection.execute(statement).rowcount > 0


def with_leases(connection: Connection, host: str) -> list[HolderFacts]:
    """The workers of this host that still hold something."""
    names = HolderFacts.__dataclass_fields__
    busy = sa.exists().where(leases.c.holder == holders.c.id)
    rows = connection.execute(sa.select(*(holders.c[name] for name in names)).where(holders.c.host == host, busy))
    return [HolderFacts(**row._mapping) for row in rows]


def forget(store: Store, connection: Connection, unseen_ms: int) -> None:
    """Drop workers that hold nothing and were not seen for long."""
    busy = sa.exists().where(leases.c.holder == holders.c.id)
    connection.execute(sa.delete(holders).where(holders.c.seen_at < store.now - unseen_ms, ~busy))
