"""Turns: of many processes that could do a piece of housekeeping, one does it at a time."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.store.engine import Store
from argus_celery.store.schema import about

c = about.c


def take(store: Store, connection: Connection, name: str, ms: int) -> bool:
    """It is this process's turn, for so long; False while it is another's."""
    row = f"turn {name}"
    until = sa.cast(store.now + ms, sa.String(32))
    free = sa.update(about).where(c.name == row, sa.cast(c.value, sa.BigInteger) <= store.now).values(value=until)
    if connection.execute(free).rowcount > 0:
        return True
    if connection.execute(sa.select(c.name).where(c.name == row)).first() is not None:
        return False
    store.dialect.insert_new(connection, about, [{"name": row, "value": "0"}])
    return connection.execute(free).rowcount > 0
