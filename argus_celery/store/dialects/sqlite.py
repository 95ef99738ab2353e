"""SQLite: one writer at a time, so a transaction takes the write lock when it begins and waits its turn."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.engine import URL, Connection, Engine

from argus_celery.errors import StoreError
from argus_celery.store.dialects.base import Dialect

BUSY_TIMEOUT_S = 30.0


class SQLite(Dialect):
    name = "sqlite"
    one_writer = True
    locks_projects = False
    minds_forks = True

    def create_engine(self, url: URL) -> Engine:
        if sqlite3.sqlite_version_info < (3, 35):
            raise StoreError(f"SQLite {sqlite3.sqlite_version} is too old: Argus needs 3.35 or newer (RETURNING)")
        if url.database in (None, "", ":memory:"):
            raise StoreError("an SQLite store must be a file (sqlite:///argus.db): every process opens it anew")
        engine = sa.create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S, "check_same_thread": False})
        event.listen(engine, "connect", _configure)
        event.listen(engine, "begin", _begin)
        return engine

    def is_absent(self, url: URL) -> bool:
        return not Path(url.database or "").exists()

    def autocommit(self, engine: Engine) -> Engine:
        # Not isolation_level="AUTOCOMMIT": it would undo what _configure sets on the connection.
        return engine.execution_options(argus_begin=None)

    def reading(self, engine: Engine) -> Engine:
        # A reader of the write-ahead log waits for nobody, unless it asks for the write lock.
        return engine.execution_options(argus_begin="BEGIN")

    def now(self) -> sa.ColumnElement[int]:
        # unixepoch('subsec') came with 3.42; julianday is good to a tenth of a millisecond.
        return sa.literal_column("CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)", sa.BigInteger)

    def _wild(self, column: sa.ColumnElement[Any], pattern: str) -> sa.ColumnElement[bool]:
        return column.op("GLOB", is_comparison=True)(pattern.replace("[", "[[]"))  # LIKE would not mind the case

    def for_update(
        self, query: sa.Select[Any], *, skip_locked: bool = False, of: sa.Table | None = None
    ) -> sa.Select[Any]:
        return query  # the transaction is the only writer already

    def insert_new(self, connection: Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
        connection.execute(insert(table).on_conflict_do_nothing(), list(rows))

    def code(self, error: sa.exc.DBAPIError) -> str | int | None:
        text = str(error.orig)
        if "no such table" in text or "no such column" in text or "has no column named" in text:
            return "missing"
        code = getattr(error.orig, "sqlite_errorcode", None)
        return code & 0xFF if isinstance(code, int) else None

    conflict_codes = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
    missing_table_codes = frozenset({"missing"})

    def is_outage(self, error: sa.exc.DBAPIError) -> bool:
        away = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL)
        return super().is_outage(error) or self.code(error) in (*away, sqlite3.SQLITE_READONLY)


def _configure(connection: Any, record: Any) -> None:
    connection.isolation_level = None
    for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: Connection) -> None:
    begin = connection.get_execution_options().get("argus_begin", "BEGIN IMMEDIATE")
    if begin:
        connection.exec_driver_sql(begin)
