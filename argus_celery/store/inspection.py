"""What a doctor asks of a store. It looks at all live work, and is called by hand."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.schema import CreateIndex

from argus_celery.records import NOBODY, QUEUE
from argus_celery.store.engine import Store
from argus_celery.store.schema import chords, leases, metadata, tasks

c, t = leases.c, tasks.c
MOST = 1000


@dataclass(frozen=True, slots=True)
class Missing:
    what: str
    fix: str
    is_column: bool
    """Or a table: nothing works without. Else an index, without which it is slow."""


@dataclass(frozen=True, slots=True)
class ShortLease:
    task_id: str
    name: str
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class Unknown:
    name: str
    count: int
    since_ms: int


def missing(store: Store) -> list[Missing]:
    """Tables, columns and indexes of the schema that the database does not have."""
    found = sa.inspect(store.engine)
    there, lacking = set(found.get_table_names()), []
    init = f"celery -A {store.app_name or 'your_app'} argus init"
    for table in metadata.sorted_tables:
        if table.name not in there:
            lacking.append(Missing(f"the table {table.name} is missing", init, is_column=True))
            continue
        columns = {column["name"] for column in found.get_columns(table.name)}
        lacking += [
            Missing(f"the column {table.name}.{column.name} is missing", init, is_column=True)
            for column in table.columns
            if column.name not in columns
        ]
        indexes = {index["name"] for index in found.get_indexes(table.name)}
        lacking += [
            Missing(
                f"the index {index.name} of {table.name} is missing: looks go through all rows",
                str(CreateIndex(index).compile(dialect=store.engine.dialect)).strip(),
                is_column=False,
            )
            for index in sorted(table.indexes, key=lambda one: str(one.name))
            if index.name not in indexes
        ]
    return lacking


def max_packet(connection: Connection) -> int:
    """MySQL's."""
    return int(connection.execute(sa.text("SELECT @@max_allowed_packet")).scalar_one())


def shortest_ttl(connection: Connection) -> ShortLease | None:
    """The live task whose lease is the shortest."""
    query = sa.select(c.task_id, t.name, c.ttl).select_from(leases.join(tasks, t.id == c.task_id))
    row = connection.execute(query.order_by(c.ttl).limit(1)).first()
    return None if row is None else ShortLease(*row)


def oldest_chord_ms(store: Store, connection: Connection) -> int | None:
    """For how long the chord waits that has waited the longest."""
    query = sa.select(store.now - sa.func.min(chords.c.created_at)).where(chords.c.sent_at.is_(None))
    found = connection.execute(query).scalar()
    return None if found is None else int(found)


def queues_with_work(connection: Connection) -> dict[str, int]:
    """How many tasks wait for each queue, or lie in it."""
    query = sa.select(c.queue, sa.func.count()).where(c.holder.in_((NOBODY, QUEUE))).group_by(c.queue)
    return {row[0]: row[1] for row in connection.execute(query)}


def live_names(connection: Connection) -> dict[str, int]:
    """How many tasks of each name wait or lie in a queue; the most frequent names."""
    source = leases.join(tasks, t.id == c.task_id)
    query = sa.select(t.name, sa.func.count()).select_from(source).where(c.holder.in_((NOBODY, QUEUE)))
    rows = connection.execute(query.group_by(t.name).order_by(sa.func.count().desc(), t.name).limit(MOST))
    return {row[0]: row[1] for row in rows}


def unknown(store: Store, connection: Connection) -> list[Unknown]:
    """Tasks that were met only by workers which lack their code, and for how long."""
    source = leases.join(tasks, t.id == c.task_id)
    columns = (t.name, sa.func.count(), store.now - sa.func.min(c.unknown_since))
    query = sa.select(*columns).select_from(source).where(c.unknown_since.is_not(None)).group_by(t.name)
    return [Unknown(row[0], row[1], int(row[2])) for row in connection.execute(query.order_by(t.name))]


def debts(store: Store, connection: Connection) -> tuple[int, int | None]:
    """How many outcomes are owed, and the oldest for how many milliseconds."""
    query = sa.select(sa.func.count(), store.now - sa.func.min(t.finished_at)).where(t.undelivered > 0)
    count, oldest = connection.execute(query).one()
    return int(count), None if oldest is None else int(oldest)
