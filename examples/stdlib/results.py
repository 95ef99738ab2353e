"""The table of results. It has no unique column, so that what is recorded twice is seen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from examples.stdlib.modules import Facts, Sum

metadata = sa.MetaData()

results = sa.Table(
    "stdlib_results",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("path", sa.String(500), nullable=False, index=True),
    sa.Column("lines", sa.Integer, nullable=False),
    sa.Column("definitions", sa.Integer, nullable=False),
    sa.Column("imports", sa.Integer, nullable=False),
)


def open_database(url: str) -> Engine:
    """Connections are not kept, so that the workers' forks share none."""
    options = {"connect_args": {"timeout": 30}} if url.startswith("sqlite") else {}
    return sa.create_engine(url, poolclass=sa.NullPool, **options)


def make(engine: Engine) -> None:
    metadata.create_all(engine)
    if engine.dialect.name == "sqlite":
        with engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA journal_mode = WAL")


@contextmanager
def kept_open(engine: Engine) -> Iterator[None]:
    """While a reader stays, no writer tidies the file up when it leaves, and a frozen one locks nobody out."""
    with engine.connect() as connection:
        connection.execute(sa.select(sa.func.count()).select_from(results))
        connection.rollback()
        yield


def record(connection: Connection, facts: Facts) -> None:
    connection.execute(sa.insert(results).values(asdict(facts)))


def is_recorded(connection: Connection, path: str) -> bool:
    return connection.execute(sa.select(results.c.id).where(results.c.path == path).limit(1)).first() is not None


def sum_up(connection: Connection) -> Sum:
    c = results.c
    totals = (sa.func.coalesce(sa.func.sum(column), 0) for column in (c.lines, c.definitions, c.imports))
    return Sum(*(int(value) for value in connection.execute(sa.select(sa.func.count(), *totals)).one()))


def recorded(engine: Engine) -> dict[str, int]:
    """How often each module was recorded."""
    query = sa.select(results.c.path, sa.func.count()).group_by(results.c.path)
    with engine.connect() as connection:
        return dict(connection.execute(query).tuples().all())


def done(engine: Engine) -> int:
    """How many modules were recorded at least once."""
    with engine.connect() as connection:
        return int(connection.execute(sa.select(sa.func.count(results.c.path.distinct()))).scalar_one())
