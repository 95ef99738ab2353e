"""The transaction of an SQLAlchemy session or connection."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.errors import BadTransaction
from argus_celery.store.outer.base import Deliver, Outer
from argus_celery.store.outer.commits import following
from argus_celery.store.outer.place import check_place

if TYPE_CHECKING:
    from argus_celery.store.engine import Store

T = TypeVar("T")

MANY_DATABASES = (
    "the session has more than one database: give the connection to the store's own,"
    " session.connection(bind_arguments={'mapper': Order})"
)


class AlchemyOuter(Outer):
    """Raises ``BadTransaction`` if the connection is not to the store's database, or commits each statement."""

    def __init__(self, store: Store, connection: Connection) -> None:
        super().__init__(store)
        self.connection = connection
        if connection.engine is not store.engine:
            _check_commits_whole(connection)
            check_place(self, connection, connection.engine)

    @property
    def is_over(self) -> bool:
        return self.connection.closed

    def write(self, work: Callable[[Connection], T]) -> T:
        begin(self.store, self.connection)
        return in_savepoint(self.store, self.connection, work)

    def then(self, deliver: Deliver, entry: Any) -> None:
        following(self.connection).note(self.connection, deliver, entry)


def connection_of(session: Any) -> Connection:
    """The connection of the transaction in which this session is, or which it begins now."""
    if isinstance(session, Connection):
        return session
    from sqlalchemy.orm import Session, scoped_session

    if hasattr(session, "sync_session") or hasattr(session, "sync_connection"):
        raise BadTransaction(f"{type(session).__name__} is asynchronous: await project.aenqueue(..., session=session)")
    if not isinstance(session, (Session, scoped_session)):
        raise BadTransaction(
            f"session= takes an SQLAlchemy Session or Connection, not {type(session).__name__};"
            " a Django database is named by using="
        )
    try:
        return session.connection()
    except sa.exc.UnboundExecutionError as error:
        raise BadTransaction(MANY_DATABASES) from error


def in_savepoint(store: Store, connection: Connection, work: Callable[[Connection], T]) -> T:
    """Run ``work``; if it fails, the transaction is as it was before."""
    savepoint = connection.begin_nested()
    try:
        result = work(connection)
        savepoint.commit()
    except BaseException as error:
        with suppress(sa.exc.DBAPIError):  # a deadlock has ended the whole transaction: that is to be told
            savepoint.rollback()
        if isinstance(error, sa.exc.DBAPIError) and is_ours(store, error):
            raise store.named(error) from error
        raise
    return result


def is_ours(store: Store, error: sa.exc.DBAPIError) -> bool:
    """Callers know what to do about it. Any other is told as the user's driver tells it: the transaction is theirs."""
    return isinstance(error, sa.exc.IntegrityError) or store.dialect.is_missing_table(error)


def begin(store: Store, connection: Connection) -> None:
    """Python's SQLite driver begins at the first change of a row: a savepoint before it would commit by itself."""
    if store.dialect_name == "sqlite":
        with suppress(AttributeError):
            if not connection.connection.driver_connection.in_transaction:  # type: ignore[union-attr]
                connection.exec_driver_sql("BEGIN IMMEDIATE")


def _check_commits_whole(connection: Connection) -> None:
    if connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT" or _is_autocommit(connection):
        raise BadTransaction(
            "the connection is in AUTOCOMMIT and has no transaction that the task could be part of:"
            " leave session= out, or take a connection without it"
        )


def _is_autocommit(connection: Connection) -> bool:
    driver: Any = connection.connection.driver_connection
    asked = getattr(driver, "get_autocommit", None)  # of MySQL's drivers
    return bool(asked()) if asked is not None else getattr(driver, "autocommit", None) is True
