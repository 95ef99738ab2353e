"""The tables of the embedded broker. They are transport: losing every row of them loses nothing but time.

They are apart from the store's own tables and made at first use, so that plain Celery can use the broker too.
"""

from __future__ import annotations

import os
import time
from functools import lru_cache

import sqlalchemy as sa

from argus_celery.store.engine import Store
from argus_celery.store.schema import _ENGINE, Big, LongText, _name

metadata = sa.MetaData()

RACES = 50

messages = sa.Table(
    "argus_messages",
    metadata,
    sa.Column("id", Big, primary_key=True, autoincrement=True),
    sa.Column("queue", _name(255), nullable=False),
    # 0 is the most urgent, so that one ascending index gives the order
    sa.Column("rank", sa.SmallInteger, nullable=False),
    # kept when a message is handed back: it returns to its old place
    sa.Column("sent_at", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.BigInteger),
    sa.Column("message", LongText, nullable=False),
    sa.Index("argus_messages_next", "queue", "rank", "sent_at", "id"),
    **_ENGINE,
)

bindings = sa.Table(
    "argus_bindings",
    metadata,
    sa.Column("exchange", _name(255), primary_key=True),
    sa.Column("routing_key", _name(255), primary_key=True),
    sa.Column("queue", _name(255), primary_key=True),
    sa.Index("argus_bindings_queue", "queue"),
    **_ENGINE,
)

# Queues that end with their reader: control, replies, events. A reader that is alive moves expires_at on.
mailboxes = sa.Table(
    "argus_mailboxes",
    metadata,
    sa.Column("queue", _name(255), primary_key=True),
    sa.Column("lifetime", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.BigInteger, nullable=False),
    **_ENGINE,
)


@lru_cache(maxsize=64)
def _broker(url: str, pid: int) -> Store:
    return Store(url, on_connect=make)


def broker(url: str) -> Store:
    """The database of this broker: one for all connections of a process. Opening it connects to nothing."""
    return _broker(url, os.getpid())


def make(store: Store) -> None:
    """Make the tables that are missing. Many processes may do so at once: who loses a race looks again."""
    for left in reversed(range(RACES)):
        if _complete(store):
            return
        try:
            metadata.create_all(store.engine)
        except sa.exc.DBAPIError:
            if not left:
                raise
            time.sleep(0.1)


def _complete(store: Store) -> bool:
    inspector = sa.inspect(store.dialect.reading(store.engine))  # whoever writes is not waited for
    return all(inspector.has_table(table.name) for table in metadata.sorted_tables)
