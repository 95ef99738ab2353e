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
    """Note a worker that has just started; doing it twice changes nothing. One that had signed off is back."""
    row = asdict(facts)
    if not seen(store, connection, facts.id):
        times = {"started_at": store.now, "seen_at": store.now, "skew_ms": _skew(store)}
        connection.execute(sa.insert(holders).values(**row, **times))


def seen(store: Store, connection: Connection, holder: str) -> bool:
    values = {"seen_at": store.now, "skew_ms": _skew(store), "left_at": None}
    return connection.execute(sa.update(holders).where(holders.c.id == holder).values(**values)).rowcount > 0


def sign_off(store: Store, connection: Connection, holder: str) -> None:
    """This worker has stopped, and nobody is to wait until it is not seen any more."""
    connection.execute(sa.update(holders).where(holders.c.id == holder).values(left_at=store.now))


def _skew(store: Store) -> sa.ColumnElement[int]:
    """How far this host's clock is ahead of the database's; a round trip makes it look the less so."""
    return sa.literal(time.time_ns() // 1_000_000, sa.BigInteger) - store.now


def clocks(store: Store, connection: Connection) -> dict[str, int]:
    """By host, how far its clock was ahead of the database's when its worker was last seen, within a day."""
    seen = (holders.c.seen_at > store.now - DAY_MS, holders.c.skew_ms.is_not(None))
    rows = connection.execute(sa.select(holders.c.host, holders.c.skew_ms).where(*seen).order_by(holders.c.seen_at))
    return {row.host: int(row.skew_ms) for row in rows}


def lately(store: Store, connection: Connection, within_ms: int) -> list[HolderFacts]:
    """Workers that were seen so lately, and have not signed off."""
    return _facts(connection, holders.c.seen_at > store.now - within_ms, holders.c.left_at.is_(None))


def with_leases(connection: Connection, host: str) -> list[HolderFacts]:
    """The workers of this host that still hold something."""
    return _facts(connection, holders.c.host == host, sa.exists().where(leases.c.holder == holders.c.id))


def _facts(connection: Connection, *where: sa.ColumnElement[bool]) -> list[HolderFacts]:
    columns = (holders.c[name] for name in HolderFacts.__dataclass_fields__)
    return [HolderFacts(**row._mapping) for row in connection.execute(sa.select(*columns).where(*where))]


def nodes(connection: Connection, ids: Collection[str]) -> dict[str, str]:
    rows = connection.execute(sa.select(holders.c.id, holders.c.node).where(holders.c.id.in_(ids)))
    return {row.id: row.node for row in rows}


def forget(store: Store, connection: Connection, unseen_ms: int) -> None:
    """Drop workers that hold nothing and were not seen for long."""
    busy = sa.exists().where(leases.c.holder == holders.c.id)
    connection.execute(sa.delete(holders).where(holders.c.seen_at < store.now - unseen_ms, ~busy))
