"""Groups whose result was saved (``GroupResult.save``)."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.store.engine import Store
from argus_celery.store.names import is_possible
from argus_celery.store.schema import groups

c = groups.c


def save(store: Store, group_id: str, result: bytes) -> None:
    """A later one replaces it."""

    def write(connection: Connection) -> None:
        new = {"id": group_id, "result": result, "created_at": 0}
        store.dialect.insert_new(connection, groups, [new])
        connection.execute(sa.update(groups).where(c.id == group_id).values(result=result, created_at=store.now))

    store.transaction(write)


def read(store: Store, group_id: str) -> bytes | None:
    if not is_possible(group_id):
        return None
    query = sa.select(c.result).where(c.id == group_id)
    found = store.statement(lambda connection: connection.execute(query).scalar())
    return None if found is None else bytes(found)


def delete(store: Store, group_id: str) -> None:
    if is_possible(group_id):
        store.statement(lambda connection: connection.execute(sa.delete(groups).where(c.id == group_id)))
