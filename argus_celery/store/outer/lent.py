"""The store's statements over a driver's connection that belongs to somebody else, who commits and closes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.pool import NullPool

from argus_celery.errors import BadTransaction

_DRIVERS = {
    "sqlite3": "sqlite+pysqlite",
    "psycopg": "postgresql+psycopg",
    "psycopg2": "postgresql+psycopg2",
    "pymysql": "mysql+pymysql",
    "MySQLdb": "mysql+mysqldb",
}
"""The module of a driver's connection, and what SQLAlchemy calls it."""

_lent: ContextVar[Any] = ContextVar("argus_lent")


class Lent:
    """The connection, without the ends of a transaction."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def commit(self) -> None:
        pass

    rollback = close = commit


@contextmanager
def lent(connection: Any) -> Iterator[Connection]:
    """SQLAlchemy over this connection, in whatever transaction it is; nothing is set on it, committed or closed."""
    module = type(connection).__module__.partition(".")[0]
    if module not in _DRIVERS:
        raise BadTransaction(f"the driver {module} is not one that argus knows: {', '.join(_DRIVERS)}")
    token = _lent.set(connection)
    try:
        with _engine(_DRIVERS[module]).connect() as made:
            yield made
    finally:
        _lent.reset(token)


@cache
def _engine(name: str) -> Engine:
    """Not ``create_engine``: what that does to each new connection would change the user's (its JSON, its REGEXP)."""
    url = sa.make_url(f"{name}://")
    made: Any = url.get_dialect()
    options = {"use_native_hstore": False} if "psycopg" in name else {}  # which is looked up and registered
    dialect = made(dbapi=made.import_dbapi(), **options)
    pool = NullPool(lambda: Lent(_lent.get()), reset_on_return=None, dialect=dialect)
    engine = Engine(pool, dialect, url)
    with engine.connect() as connection:
        dialect.initialize(connection)
    return engine
