"""Hot statements: those that every task goes through are written once, compiled once, and run by the driver itself.

Building an SQLAlchemy expression costs several times what the driver takes to run it, and so is done once per store
and shape. On a connection of the store's own the driver's cursor then gets the text and the values. On one of the
user's, or where somebody listens to statements, SQLAlchemy runs the same statement in its own way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

if TYPE_CHECKING:
    from argus_celery.store.engine import Store

Values = Mapping[str, Any]

_PLAIN = frozenset({"pysqlite", "psycopg", "psycopg2", "pymysql", "mysqldb"})
"""Drivers that take and give the values of our columns as they are, so that nothing has to be converted."""


class Hot:
    """A statement by the function that writes it, from the store and a shape: whatever changes its text.

    All that changes from call to call is a ``bindparam``, none of which is named like a column: SQLAlchemy would take
    it for one to be written. A list of values is as many of them, see ``listed``.
    """

    def __init__(self, write: Callable[..., Any]) -> None:
        self._write = write

    def rows(self, store: Store, connection: Connection, values: Values, *shape: Any) -> list[Any]:
        """Its rows, as tuples in the order of its columns."""
        found: list[Any] = self._statement(store, shape).run(store, connection, values, fetch=True)
        return found

    def run(self, store: Store, connection: Connection, values: Values, *shape: Any) -> int:
        """How many rows it changed."""
        count: int = self._statement(store, shape).run(store, connection, values)
        return count

    def run_all(self, store: Store, connection: Connection, values: Sequence[Values], *shape: Any) -> None:
        """Once for each of these, in as few round trips as the driver can."""
        statement = self._statement(store, shape)
        if len(values) == 1:
            statement.run(store, connection, values[0])
        elif values:
            statement.run_all(store, connection, values)

    def _statement(self, store: Store, shape: tuple[Any, ...]) -> _Statement:
        key = (self, shape, store.clock_shift)
        found = store.hot.get(key)
        if found is None:
            found = store.hot[key] = _Statement(self._write(store, *shape))
        return found


class _Statement:
    def __init__(self, statement: Any) -> None:
        self.statement = statement
        self._text: str | None = None
        self._order: list[str] | None = None
        self._constants: dict[str, Any] = {}

    def run(self, store: Store, connection: Connection, values: Values, *, fetch: bool = False) -> Any:
        if not _is_plain(store, connection):
            result = connection.execute(self.statement, values)
            return result.all() if fetch else result.rowcount
        return self._driven(connection, self._arguments(connection, values), fetch)

    def run_all(self, store: Store, connection: Connection, values: Sequence[Values]) -> None:
        if not _is_plain(store, connection):
            connection.execute(self.statement, list(values))
        else:
            self._driven(connection, [self._arguments(connection, one) for one in values], many=True)

    def _arguments(self, connection: Connection, values: Values) -> Any:
        if self._text is None:
            self._compile(connection)
        given = {**self._constants, **values}
        return given if self._order is None else tuple([given[name] for name in self._order])

    def _compile(self, connection: Connection) -> None:
        compiled = self.statement.compile(dialect=connection.dialect)
        self._constants = dict(compiled.params)
        self._order = list(compiled.positiontup) if compiled.positional else None
        self._text = str(compiled)

    def _driven(self, connection: Connection, arguments: Any, fetch: bool = False, many: bool = False) -> Any:
        dialect, driver = connection.dialect, connection.connection
        cursor = driver.cursor()
        try:
            (cursor.executemany if many else cursor.execute)(self._text, arguments)
            return cursor.fetchall() if fetch else cursor.rowcount
        except dialect.loaded_dbapi.Error as error:
            # As SQLAlchemy would name it, and with the connection given up if it is gone.
            gone = dialect.is_disconnect(error, driver, cursor)
            if gone:
                connection.invalidate(error)
            raise sa.exc.DBAPIError.instance(
                self._text, arguments, error, dialect.loaded_dbapi.Error, connection_invalidated=gone, dialect=dialect
            ) from error
        finally:
            cursor.close()


def _is_plain(store: Store, connection: Connection) -> bool:
    """Is it one of the store's own, through a driver that needs no help, and unobserved?"""
    return (
        connection.engine.pool is store.engine.pool
        and connection.dialect.driver in _PLAIN
        and not connection.dispatch.before_cursor_execute
        and not connection.in_nested_transaction()
    )


# --- for who writes them -------------------------------------------------------------------------------------------


def new(table: sa.Table, prefix: str, names: Sequence[str]) -> dict[str, sa.BindParameter[Any]]:
    """These columns as parameters of an insert; ``as_new`` gives their values."""
    return {name: sa.bindparam(f"{prefix}{name}", type_=table.c[name].type) for name in names}


def as_new(prefix: str, values: Values) -> dict[str, Any]:
    return {prefix + name: value for name, value in values.items()}


def size(count: int) -> int:
    """The next power of two: so many parameters a list has, so that few texts are compiled and prepared."""
    return 1 << (count - 1).bit_length()


def listed(name: str, count: int, type_: Any) -> list[sa.BindParameter[Any]]:
    """As many parameters as ``size`` says; ``filled`` gives their values."""
    return [sa.bindparam(f"given_{name}_{number}", type_=type_) for number in range(count)]


def filled(name: str, values: Collection[Any]) -> dict[str, Any]:
    """The last one is repeated up to the size."""
    given, last = list(values), len(values) - 1
    return {f"given_{name}_{number}": given[min(number, last)] for number in range(size(len(given)))}
