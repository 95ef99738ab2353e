"""Rows of holders: one per worker incarnation, with what proves it dead."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import asdict

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.records import HolderFacts
from argus_celery.store.engine import Store
from argus_celery.store.schema import holders, leases

DAY_MS = 24 * 3600 * 1000


def register(store: Store, connection: Connection, facts: HolderFacts) -> None:
    """Note a worker that has just started; doing it twice changes nothing."""
    row = asdict(facts)
    if not seen(store, connection, facts.id):
        times = {"started_at": store.now, "seen_at": store.now, "skew_ms": _skew(store)}
        connection.execute(sa.insert(holders).values(**row, **times))


def seen(store: Store, connection: Connection, holder: str) -> bool:
    statement = sa.update(holders).where(holders.c.id == holder).values(seen_at=store.now, skew_ms=_skew(store))
    return connection.execute(statement).rowcount > 0


def _skew(store: Store) -> sa.ColumnElement[int]:
    """How far this host's clock is ahead of the database's; a round trip makes it look the less so."""
    return sa.literal(time.time_ns() // 1_000_000, sa.BigInteger) - store.now


def clocks(store: Store, connection: Connection) -> dict[str, int]:
    """By host, how far its clock was ahead of the database's when its worker was last seen, within a day."""
    seen = (holders.c.seen_at > store.now - DAY_MS, holders.c.skew_ms.is_not(None))
    rows = connection.execute(sa.select(holders.c.host, holders.c.skew_ms).where(*seen).order_by(holders.c.seen_at))
    return {row.host: int(row.skew_ms) for row in rows}


def alive(store: Store, connection: Connection, within_ms: int) -> set[str]:
    """The nodes of workers that were seen so lately."""
    query = sa.select(holders.c.node).where(holders.c.seen_at > store.now - within_ms)
    return set(connection.execute(query).scalars())


def with_leases(connection: Connection, host: str) -> list[HolderFacts]:
    """The workers of this host that still hold something."""
    names = HolderFacts.__dataclass_fields__
    busy = sa.exists().where(leases.c.holder == holders.c.id)
    rows = connection.execute(sa.select(*(holders.c[name] for name in names)).where(holders.c.host == host, busy))
    return [HolderFacts(**row._mapping) for row in rows]


def nodes(connection: Connection, ids: Collection[str]) -> dict[str, str]:
    rows = connection.execute(sa.select(holders.c.id, holders.c.node).where(holders.c.id.in_(ids)))
    return {row.id: row.node for row in rows}


def forget(store: Store, connection: Connection, unseen_ms: int) -> None:
    """Drop workers that hold nothing and were not seen for long."""
    busy = sa.exists().where(leases.c.holder == holders.c.id)
    connection.execute(sa.delete(holders).where(holders.c.seen_at < store.now - unseen_ms, ~busy))
