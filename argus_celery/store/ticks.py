"""Rows of ticks: up to which due instant each beat entry has been sent."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.store.engine import Store
from argus_celery.store.schema import ticks

_NEVER = -1


@dataclass(frozen=True, slots=True)
class Ticked:
    """The last due instant of an entry, if it has one, and the store's clock as it was read."""

    due_at: int | None
    now: int


def read(store: Store, connection: Connection, entry: str) -> Ticked:
    due_at = sa.select(ticks.c.due_at).where(ticks.c.entry == entry).scalar_subquery()
    row = connection.execute(sa.select(due_at.label("due_at"), store.now.label("now"))).one()
    return Ticked(None if row.due_at in (None, _NEVER) else row.due_at, row.now)


def standing(connection: Connection, entries: Collection[str]) -> dict[str, int]:
    """Up to which instant each of these entries has ticked; those that never did are left out."""
    query = sa.select(ticks.c.entry, ticks.c.due_at).where(ticks.c.entry.in_(entries), ticks.c.due_at > _NEVER)
    return {row.entry: row.due_at for row in connection.execute(query)}


def move(store: Store, connection: Connection, entry: str, last: int | None, due_at: int) -> bool:
    """The entry has ticked up to this instant, if it stood at ``last``; False if another beat moved it.

    The row stays locked until the commit, so that of two beats the second waits for what the first has written.
    """
    if last is None:
        store.dialect.insert_new(connection, ticks, [{"entry": entry, "due_at": _NEVER, "ticked_at": 0}])
    where = (ticks.c.entry == entry, ticks.c.due_at == (_NEVER if last is None else last))
    moved = connection.execute(sa.update(ticks).where(*where).values(due_at=due_at, ticked_at=store.now))
    return moved.rowcount > 0
