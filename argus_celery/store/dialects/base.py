"""What the rest of the store may ask of a database."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine


class Dialect:
    """The contract; the defaults are those that hold on more than one database."""

    name: ClassVar[str]
    returning: ClassVar[bool] = True
    """Does UPDATE … RETURNING exist? Otherwise granted rows are read back by their mark."""
    writes_in_with: ClassVar[bool] = False
    """May a statement write to other tables in its WITH?"""
    one_writer: ClassVar[bool] = False
    """Does a transaction that writes keep all others out?"""
    locks_projects: ClassVar[bool] = True
    """Is steering kept out by a lock of the project? Else it is by the transaction."""
    minds_forks: ClassVar[bool] = False
    """Must a fork wait until no thread is in the store?"""
    conflict_codes: ClassVar[frozenset[str | int]] = frozenset()
    missing_table_codes: ClassVar[frozenset[str | int]] = frozenset()

    def create_engine(self, url: URL) -> Engine:
        raise NotImplementedError

    def is_absent(self, url: URL) -> bool:
        """Is there no database yet, so that connecting would make one?"""
        return False

    def autocommit(self, engine: Engine) -> Engine:
        return engine.execution_options(isolation_level="AUTOCOMMIT")

    def reading(self, engine: Engine) -> Engine:
        return engine

    def now(self) -> sa.ColumnElement[int]:
        raise NotImplementedError

    def glob(self, column: sa.ColumnElement[Any], pattern: str) -> sa.ColumnElement[bool]:
        """Does a text match, by the letter? ``*`` stands for any letters and ``?`` for one; nothing else is special."""
        if not any(sign in pattern for sign in "*?"):
            return column == pattern
        return self._wild(column, pattern)

    def _wild(self, column: sa.ColumnElement[Any], pattern: str) -> sa.ColumnElement[bool]:
        literal = re.sub(r"[%_!]", r"!\g<0>", pattern)
        return column.like(literal.replace("*", "%").replace("?", "_"), escape="!")

    def for_update(
        self, query: sa.Select[Any], *, skip_locked: bool = False, of: sa.Table | None = None
    ) -> sa.Select[Any]:
        """Lock the rows it finds, or those of one of its tables."""
        return query.with_for_update(skip_locked=skip_locked, of=of)

    def project_lock(self, *, exclusive: bool) -> sa.Executable:
        """Locks the project of the parameter ``project`` until the commit; where ``locks_projects``.

        Many may hold it shared; steering (pause, resume, close, cancel, complete) excludes them.
        """
        raise NotImplementedError

    def insert_new(self, connection: Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert the rows whose unique keys are not there yet; wait for a rival's uncommitted one."""
        raise NotImplementedError

    def insert_or_lock(self, connection: Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
        """The same, and those that are there already are locked until the commit."""
        self.insert_new(connection, table, rows)

    def code(self, error: sa.exc.DBAPIError) -> str | int | None:
        raise NotImplementedError

    def is_conflict(self, error: sa.exc.DBAPIError) -> bool:
        """Deadlock, serialisation failure, lock wait: the whole transaction is worth repeating."""
        return self.code(error) in self.conflict_codes

    def is_missing_table(self, error: sa.exc.DBAPIError) -> bool:
        return self.code(error) in self.missing_table_codes

    def is_outage(self, error: sa.exc.DBAPIError) -> bool:
        return error.connection_invalidated or isinstance(error, sa.exc.InterfaceError)
