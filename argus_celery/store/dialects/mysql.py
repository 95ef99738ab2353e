"""MySQL and MariaDB: no UPDATE … RETURNING, so granted rows are read back by their mark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.mysql import insert
from sqlalchemy.engine import URL, Connection, Engine

from argus_celery.store.dialects.base import Dialect


class MySQL(Dialect):
    name = "mysql"
    returning = False
    conflict_codes = frozenset({1205, 1213, 1020})
    missing_table_codes = frozenset({1146, 1054})

    def create_engine(self, url: URL) -> Engine:
        connect = {} if "connect_timeout" in url.query else {"connect_timeout": 5}
        engine = sa.create_engine(url, isolation_level="READ COMMITTED", pool_recycle=1800, connect_args=connect)
        return engine

    def now(self) -> sa.ColumnElement[int]:
        # NOW() is the statement's start. SYSDATE() would be later by a lock wait, and shuts out every index range.
        return sa.literal_column("CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)", sa.BigInteger)

    def lock_project(self, connection: Connection, project_id: int, *, exclusive: bool) -> None:
        mode = "FOR UPDATE" if exclusive else "LOCK IN SHARE MODE"
        connection.execute(sa.text(f"SELECT id FROM argus_projects WHERE id = :id {mode}"), {"id": project_id})

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
