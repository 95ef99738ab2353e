"""MySQL and MariaDB: no UPDATE … RETURNING, so granted rows are read back by their mark.

Connections are in autocommit, and a transaction begins by a BEGIN of its own: a statement alone is one round trip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.dialects.mysql import insert
from sqlalchemy.engine import URL, Connection, Engine, ExceptionContext

from argus_celery.store.dialects.base import Dialect

ROLLED_BACK = frozenset({1213, 1020})
"""Deadlock, record changed: the server has rolled back the whole transaction. A lock wait (1205) ends one statement."""


class MySQL(Dialect):
    name = "mysql"
    returning = False
    conflict_codes = frozenset({1205, *ROLLED_BACK})
    missing_table_codes = frozenset({1146, 1054})

    def create_engine(self, url: URL) -> Engine:
        connect = {"autocommit": True, **({} if "connect_timeout" in url.query else {"connect_timeout": 5})}
        engine = sa.create_engine(url, pool_recycle=1800, connect_args=connect)
        if engine.dialect.driver == "pymysql":
            event.listen(engine, "do_connect", _connected)
        event.listen(engine, "connect", _configure)
        event.listen(engine, "begin", _begin)
        event.listen(engine, "handle_error", _end_with_the_servers)
        return engine

    def autocommit(self, engine: Engine) -> Engine:
        # Not isolation_level="AUTOCOMMIT", which sets and unsets it around each statement: five round trips more.
        return engine.execution_options(argus_begin=False)

    def reading(self, engine: Engine) -> Engine:
        return self.autocommit(engine)  # READ COMMITTED gives each statement a view of its own all the same

    def now(self) -> sa.ColumnElement[int]:
        # NOW() is the statement's start. SYSDATE() would be later by a lock wait, and shuts out every index range.
        return sa.literal_column("CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)", sa.BigInteger)

    def project_lock(self, *, exclusive: bool) -> sa.Executable:
        mode = "FOR UPDATE" if exclusive else "LOCK IN SHARE MODE"
        return sa.text(f"SELECT id FROM argus_projects WHERE id = :project {mode}")

    def insert_new(self, connection: Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
        # INSERT IGNORE would swallow truncation and bad values too.
        first = next(iter(table.primary_key.columns))
        statement = insert(table)
        connection.execute(statement.on_duplicate_key_update({first.name: first}), list(rows))

    def code(self, error: sa.exc.DBAPIError) -> str | int | None:
        arguments = getattr(error.orig, "args", ())
        return arguments[0] if arguments and isinstance(arguments[0], int) else None

    def is_outage(self, error: sa.exc.DBAPIError) -> bool:
        code = self.code(error)
        lost = isinstance(code, int) and (
            2000 <= code < 2100 or code in (0, 1040, 1053, 1077, 1079, 1080, 1152, 1927, 3024)
        )
        return super().is_outage(error) or lost


def _configure(connection: Any, record: Any) -> None:
    cursor = connection.cursor()
    cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    cursor.close()


def _begin(connection: Connection) -> None:
    if connection.get_execution_options().get("argus_begin", True):
        connection.exec_driver_sql("BEGIN")


def _end_with_the_servers(context: ExceptionContext) -> None:
    """Who catches the error and goes on would write in autocommit, out of the reach of rollback and fence."""
    arguments = getattr(context.original_exception, "args", ())
    transaction = context.connection.get_transaction() if context.connection is not None else None
    if transaction is not None and arguments and arguments[0] in ROLLED_BACK:
        transaction.rollback()


def _connected(dialect: Any, record: Any, arguments: Any, options: Any) -> Any:
    return _quiet()(*arguments, **options)


@cache
def _quiet() -> Any:
    """PyMySQL's connection, which ends no transaction where there is none: SQLAlchemy asks for it each time."""
    from pymysql.connections import Connection
    from pymysql.constants.SERVER_STATUS import SERVER_STATUS_IN_TRANS

    class Quiet(Connection):
        def commit(self) -> None:
            if self.server_status & SERVER_STATUS_IN_TRANS:
                super().commit()

        def rollback(self) -> None:
            if self.server_status & SERVER_STATUS_IN_TRANS:
                super().rollback()

    return Quiet
