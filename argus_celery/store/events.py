"""Rows of events: what a project was told, under a name. The first to tell it wins.

A row that was not sent yet is there for those who wait: who waits and who sends lock the same row.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.store.engine import Store
from argus_celery.store.schema import events, waits

c = events.c


@dataclass(frozen=True, slots=True)
class Event:
    payload: bytes
    sent_at: int


def lock(store: Store, connection: Connection, project_id: int, name: str) -> Event | None:
    """Lock the event until the commit, whether or not it was sent. Behind the project, before any lease."""
    query = store.dialect.for_update(_select(project_id, name))
    row = connection.execute(query).first()
    if row is None:
        store.dialect.insert_or_lock(connection, events, [{"project_id": project_id, "name": name}])
        row = connection.execute(query).one()  # a rival may have sent it meanwhile
    return _event(row)


def read(connection: Connection, project_id: int, name: str) -> Event | None:
    """What was sent under this name."""
    return _event(connection.execute(_select(project_id, name)).first())


def _select(project_id: int, name: str) -> sa.Select[tuple[bytes, int]]:
    return sa.select(c.payload, c.sent_at).where(c.project_id == project_id, c.name == name)


def _event(row: sa.Row[tuple[bytes, int]] | None) -> Event | None:
    return None if row is None or row.sent_at is None else Event(bytes(row.payload), row.sent_at)


def tell(store: Store, connection: Connection, project_id: int, name: str, payload: bytes) -> None:
    """The event is locked, and was not sent before."""
    row = sa.update(events).where(c.project_id == project_id, c.name == name)
    connection.execute(row.values(payload=payload, sent_at=store.now))


def drop_unsent(connection: Connection, limit: int) -> int:
    """Forget events that were only waited for, and are not any more."""
    awaited = sa.exists().where(waits.c.project_id == c.project_id, waits.c.name == c.name)
    query = sa.select(c.project_id, c.name).where(c.sent_at.is_(None), ~awaited).limit(limit)
    keys = [tuple(row) for row in connection.execute(query)]
    if keys:
        unsent = (sa.tuple_(c.project_id, c.name).in_(keys), c.sent_at.is_(None))
        connection.execute(sa.delete(events).where(*unsent))
    return len(keys)
