"""Who gets what is sent to an exchange, and queues that end with their reader."""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.store.broker import bindings, mailboxes, messages
from argus_celery.store.engine import Store

GRACE = 60_000
"""Milliseconds between the end of a mailbox and the last sweep of it: a sender may have read its binding before."""


def bind(store: Store, exchange: str, routing_key: str, queue: str) -> None:
    """Doing it twice changes nothing, and the second time writes nothing."""
    row = {"exchange": exchange, "routing_key": routing_key, "queue": queue}
    same = sa.select(bindings.c.queue).filter_by(**row)
    if not store.statement(lambda connection: connection.execute(same).first()):
        store.transaction(lambda connection: store.dialect.insert_new(connection, bindings, [row]))


def unbind(store: Store, exchange: str, routing_key: str, queue: str) -> None:
    row = {"exchange": exchange, "routing_key": routing_key, "queue": queue}
    store.statement(lambda connection: connection.execute(sa.delete(bindings).filter_by(**row)))


def bound(store: Store, exchange: str) -> list[tuple[str, str]]:
    """(routing key, queue) of all that is bound to the exchange."""
    query = sa.select(bindings.c.routing_key, bindings.c.queue).where(bindings.c.exchange == exchange)
    return [(key, queue) for key, queue in store.statement(lambda connection: connection.execute(query).all())]


def drop_exchange(store: Store, exchange: str) -> None:
    delete = sa.delete(bindings).where(bindings.c.exchange == exchange)
    store.statement(lambda connection: connection.execute(delete))


def open_mailbox(store: Store, queue: str, lifetime: int) -> None:
    """From now on the queue ends ``lifetime`` milliseconds after the last ``keep``."""

    def work(connection: Connection) -> None:
        if not connection.execute(_moved_on(store, [queue])).rowcount:
            now = connection.execute(sa.select(store.now)).scalar_one()
            row = {"queue": queue, "lifetime": lifetime, "expires_at": now + lifetime}
            store.dialect.insert_new(connection, mailboxes, [row])

    store.transaction(work)


def keep(store: Store, queues: Collection[str]) -> set[str]:
    """The reader is alive; returns those that have ended in spite of it and must be declared again."""

    def work(connection: Connection) -> set[str]:
        connection.execute(_moved_on(store, queues))
        here = sa.select(mailboxes.c.queue).where(mailboxes.c.queue.in_(queues))
        return set(queues) - set(connection.execute(here).scalars())

    return store.transaction(work)


def _moved_on(store: Store, queues: Collection[str]) -> sa.Update:
    later = mailboxes.update().where(mailboxes.c.queue.in_(queues))
    return later.values(expires_at=store.now + mailboxes.c.lifetime)


def drop(store: Store, queue: str) -> None:
    """The queue is gone, with its bindings and messages. A mailbox stays in the list until it is buried."""

    def work(connection: Connection) -> None:
        connection.execute(sa.delete(bindings).where(bindings.c.queue == queue))
        connection.execute(sa.delete(messages).where(messages.c.queue == queue))
        connection.execute(mailboxes.update().where(mailboxes.c.queue == queue).values(expires_at=store.now))

    store.transaction(work)


def bury(store: Store) -> int:
    """Remove mailboxes whose reader died: bindings first, and the rest when nobody can still be sending to them."""
    query = sa.select(mailboxes.c.queue, (mailboxes.c.expires_at <= store.now - GRACE).label("long_ago"))
    query = query.where(mailboxes.c.expires_at <= store.now)
    ended = store.statement(lambda connection: connection.execute(query).all())
    if ended:
        store.transaction(lambda connection: _unbind_all(connection, [row.queue for row in ended]))
    if long_ago := [row.queue for row in ended if row.long_ago]:
        store.transaction(lambda connection: _forget_all(connection, long_ago))
    return len(ended)


def _unbind_all(connection: Connection, queues: Collection[str]) -> None:
    found = sa.select(bindings.c.queue).where(bindings.c.queue.in_(queues)).limit(1)
    if connection.execute(found).first():
        connection.execute(sa.delete(bindings).where(bindings.c.queue.in_(queues)))
        connection.execute(sa.delete(messages).where(messages.c.queue.in_(queues)))


def _forget_all(connection: Connection, queues: Collection[str]) -> None:
    for table in (messages, mailboxes):
        connection.execute(sa.delete(table).where(table.c.queue.in_(queues)))
