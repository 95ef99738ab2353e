"""A store for a test: a database of its own on a server, gone after it; and the same store empty once more."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.store import broker, schema
from argus_celery.store.engine import Store


@contextmanager
def fresh_database(server_url: str) -> Iterator[str]:
    """An empty database on PostgreSQL, MySQL or MariaDB; yields its SQLAlchemy URL. That in the URL is left alone."""
    url = sa.make_url(server_url)
    name = f"argus_test_{uuid.uuid4().hex[:12]}"
    force = " WITH (FORCE)" if url.get_backend_name() == "postgresql" else ""
    engine = sa.create_engine(url, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    try:
        yield url.set(database=name).render_as_string(hide_password=False)
    finally:
        with engine.connect() as connection:
            connection.exec_driver_sql(f"DROP DATABASE IF EXISTS {name}{force}")


def empty(store: Store) -> None:
    """Forget all tasks, projects and messages. Whose store it is, and its version, stay; so do tables of others."""
    store.transaction(_empty)
    store.dispose()


def _empty(connection: Connection) -> None:
    there = set(sa.inspect(connection).get_table_names())
    for table in reversed([*schema.metadata.sorted_tables, *broker.metadata.sorted_tables]):
        if table.name in there and table is not schema.about:
            connection.execute(sa.delete(table))
