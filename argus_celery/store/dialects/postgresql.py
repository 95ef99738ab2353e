"""PostgreSQL: advisory locks keep shared project locks off the disk; the clock is wrapped to stay indexable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.engine import URL, Connection, Engine

from argus_celery.store.dialects.base import Dialect

ADVISORY_CLASS = 0x4172  # "Ar": the first half of the advisory key, so that an application's own locks differ


class PostgreSQL(Dialect):
    name = "postgresql"
    writes_in_with = True
    conflict_codes = frozenset({"40001", "40P01", "55P03"})
    missing_table_codes = frozenset({"42P01", "42703"})

    def create_engine(self, url: URL) -> Engine:
        connect = {} if "connect_timeout" in url.query else {"connect_timeout": 5}
        return sa.create_engine(url, isolation_level="READ COMMITTED", pool_pre_ping=False, connect_args=connect)

    def now(self) -> sa.ColumnElement[int]:
        # clock_timestamp() is volatile and could not be compared by an index; in a subquery it is read once.
        return sa.literal_column("(SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint)", sa.BigInteger)

    def project_lock(self, *, exclusive: bool) -> sa.Executable:
        # FOR SHARE would write the hot project row's header once per task.
        name = "pg_advisory_xact_lock" if exclusive else "pg_advisory_xact_lock_shared"
        id_ = sa.cast(sa.bindparam("project", type_=sa.BigInteger) % 2**31, sa.Integer)
        lock = getattr(sa.func, name)(ADVISORY_CLASS, id_)
        return sa.select(sa.literal(1)).select_from(lock.alias("held"))

    def insert_new(self, connection: Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
        connection.execute(insert(table).on_conflict_do_nothing(), list(rows))

    def insert_or_lock(self, connection: Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
        keys = list(table.primary_key.columns)
        statement = insert(table).on_conflict_do_update(index_elements=keys, set_={keys[0].name: keys[0]})
        connection.execute(statement, list(rows))

    def code(self, error: sa.exc.DBAPIError) -> str | int | None:
        return getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)

    def is_outage(self, error: sa.exc.DBAPIError) -> bool:
        state = str(self.code(error) or "")
        # 08 connection, 57P server going down or coming up, 53 out of connections; no state: the socket broke
        unnamed = not state and isinstance(error, sa.exc.OperationalError)
        return super().is_outage(error) or unnamed or state.startswith(("08", "57P", "53"))
