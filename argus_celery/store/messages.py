"""Messages of the embedded broker: put, look, take. A take removes the rows in the statement that reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from argus_celery.store.broker import messages
from argus_celery.store.engine import Store

CHANNEL = "argus_messages"
"""The PostgreSQL channel on which the names of queues that got a message are told."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """A message on its way into a queue. ``sent_at`` is set when it goes back to its old place."""

    queue: str
    rank: int
    message: str
    ttl: int | None = None
    sent_at: int | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    queue: str
    rank: int
    sent_at: int
    message: str


def put(store: Store, parcels: Sequence[Parcel]) -> None:
    """All of them or none, in one transaction (one statement if it is one message)."""
    if not parcels:
        return
    rows = [_row(parcel) for parcel in parcels]
    insert = _insert(store)
    if store.dialect_name != "postgresql":
        (store.statement if len(rows) == 1 else store.transaction)(lambda connection: connection.execute(insert, rows))
    elif len(rows) == 1:
        store.statement(lambda connection: connection.execute(_insert_and_tell(store), rows[0]))
    else:
        store.transaction(lambda connection: _insert_all_and_tell(connection, insert, rows))


def _row(parcel: Parcel) -> dict[str, Any]:
    return {
        "queue": parcel.queue,
        "rank": parcel.rank,
        "message": parcel.message,
        "given_sent_at": parcel.sent_at,
        "ttl": parcel.ttl,
    }


@lru_cache(maxsize=16)
def _insert(store: Store) -> sa.Insert:
    sent_at = sa.func.coalesce(sa.bindparam("given_sent_at", type_=sa.BigInteger), store.now)
    return sa.insert(messages).values(
        queue=sa.bindparam("queue"),
        rank=sa.bindparam("rank"),
        message=sa.bindparam("message"),
        sent_at=sent_at,
        # NULL with no ttl
        expires_at=store.now + sa.bindparam("ttl", type_=sa.BigInteger),
    )


@lru_cache(maxsize=16)
def _insert_and_tell(store: Store) -> sa.Select[Any]:
    sent = _insert(store).returning(messages.c.queue).cte("sent")
    return sa.select(sa.func.pg_notify(CHANNEL, sent.c.queue), *_at_ease(store))


def _insert_all_and_tell(connection: Connection, insert: sa.Insert, rows: list[dict[str, Any]]) -> None:
    connection.execute(insert, rows)
    for queue in sorted({row["queue"] for row in rows}):
        connection.execute(sa.select(sa.func.pg_notify(CHANNEL, queue)))


def waiting(store: Store, queues: Sequence[str]) -> list[str]:
    """Those of the queues that have a message. One read, which takes no lock."""
    query = _looks(len(queues))
    names = {f"queue_{number}": queue for number, queue in enumerate(queues)}
    found = store.statement(lambda connection: connection.execute(query, names).scalars().all())
    return list(found)


@lru_cache(maxsize=64)
def _looks(count: int) -> Any:
    looks = []
    for number in range(count):
        name = sa.bindparam(f"queue_{number}", type_=messages.c.queue.type)
        first = sa.select(messages.c.queue).where(messages.c.queue == name).limit(1).subquery()
        looks.append(sa.select(first.c.queue))
    return looks[0] if count == 1 else sa.union_all(*looks)


def take(store: Store, queue: str, limit: int) -> list[Taken]:
    """Up to ``limit`` messages of the queue, the most urgent and oldest first. They are gone from it.

    What is past its time is dropped on the way.
    """
    values = {"queue_name": queue, "at_most": limit}
    if store.dialect.returning:
        statement = _delete_returning(store)
        rows = store.statement(lambda connection: connection.execute(statement, values).all())
    else:
        rows = store.transaction(lambda connection: _lock_and_delete(store, connection, values))
    fresh = [row for row in rows if not row.stale]
    return [Taken(queue, row.rank, row.sent_at, row.message) for row in sorted(fresh, key=_order)]


def _order(row: Row[Any]) -> tuple[int, int, int]:
    return row.rank, row.sent_at, row.id


def _first(*columns: Any) -> sa.Select[Any]:
    return (
        sa.select(*columns)
        .where(messages.c.queue == sa.bindparam("queue_name", type_=messages.c.queue.type))
        .order_by(messages.c.queue, messages.c.rank, messages.c.sent_at, messages.c.id)
        .limit(sa.bindparam("at_most", type_=sa.Integer))
    )


def _facts(store: Store) -> list[Any]:
    stale = sa.func.coalesce(messages.c.expires_at <= store.now, sa.false()).label("stale")
    return [messages.c.id, messages.c.rank, messages.c.sent_at, messages.c.message, stale]


@lru_cache(maxsize=16)
def _delete_returning(store: Store) -> Any:
    first = store.dialect.for_update(_first(messages.c.id), skip_locked=True).cte("first_ones")
    return (
        sa.delete(messages).where(messages.c.id.in_(sa.select(first.c.id))).returning(*_facts(store), *_at_ease(store))
    )


def _lock_and_delete(store: Store, connection: Connection, values: dict[str, Any]) -> Sequence[Row[Any]]:
    rows = connection.execute(_locked(store), values).all()
    if rows:
        connection.execute(sa.delete(messages).where(messages.c.id.in_([row.id for row in rows])))
    return rows


def _at_ease(store: Store) -> list[Any]:
    """PostgreSQL need not wait for its disk at this commit: a transport may lose and repeat."""
    if store.dialect_name != "postgresql":
        return []
    return [sa.func.set_config("synchronous_commit", "off", sa.true()).label("at_ease")]


@lru_cache(maxsize=16)
def _locked(store: Store) -> sa.Select[Any]:
    return store.dialect.for_update(_first(*_facts(store)), skip_locked=True)


def count(store: Store, queue: str) -> int:
    query = sa.select(sa.func.count()).where(messages.c.queue == queue)
    return store.statement(lambda connection: connection.execute(query).scalar_one())


def purge(store: Store, queue: str) -> int:
    """Remove all messages of the queue; returns how many."""
    delete = sa.delete(messages).where(messages.c.queue == queue)
    return store.statement(lambda connection: connection.execute(delete).rowcount)
