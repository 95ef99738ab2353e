"""Django's transaction on one of its databases: ``atomic`` is entered once more, and ``on_commit`` tells the commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa

from argus_celery.errors import BadTransaction
from argus_celery.store.outer.alchemy import is_ours
from argus_celery.store.outer.base import Deliver, Outer, outside
from argus_celery.store.outer.lent import lent
from argus_celery.store.outer.place import check_place, is_checked

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from argus_celery.store.engine import Store

T = TypeVar("T")


class DjangoOuter(Outer):
    """Where ``atomic`` is not entered, each write commits by itself, as everything does in Django."""

    def __init__(self, store: Store, alias: str) -> None:
        super().__init__(store)
        self.database = _database(alias)
        if not is_checked(store, self.database):
            self.write(lambda connection: check_place(self, connection, self.database))

    def write(self, work: Callable[[Connection], T]) -> T:
        from django.db import transaction

        with self.database.wrap_database_errors, transaction.atomic(using=self.database.alias):
            self.database.ensure_connection()
            with lent(self.database.connection) as connection:
                try:
                    return work(connection)
                except sa.exc.DBAPIError as error:
                    if is_ours(self.store, error):
                        raise self.store.named(error) from error
                    raise (error.orig or error) from error  # as Django's own queries would raise it

    def then(self, deliver: Deliver, entry: Any) -> None:
        from django.db import transaction

        def committed() -> None:
            with outside():
                deliver([entry])

        transaction.on_commit(committed, using=self.database.alias)


def guard_django(store: Store, alias: str, hold: Callable[[Connection], None]) -> None:
    """Call ``hold`` just before Django's transaction under way commits; if it raises, that is rolled back instead.

    ``BadTransaction`` where there is none: Django then commits each statement by itself.
    """
    database = DjangoOuter(store, alias).database
    if database.get_autocommit() and not database.in_atomic_block:
        raise BadTransaction(
            f"guard(using={alias!r}) stands in no transaction, so each statement commits by itself:"
            f" call it inside transaction.atomic(using={alias!r})"
        )
    if _GUARDED not in database.__dict__:
        _watch_end(database)
    database.__dict__[_GUARDED].append(hold)


_GUARDED = "argus_guards"
_ENDS = ("commit", "rollback", "close")


def _watch_end(database: Any) -> None:
    """Django tells nobody before it commits: its own methods are put aside until one of them is called."""
    database.__dict__[_GUARDED] = []

    def ending(name: str) -> Callable[[], None]:
        def end() -> None:
            holds = database.__dict__.pop(_GUARDED)
            for one in _ENDS:
                del database.__dict__[one]
            if name == "commit":
                _hold_all(database, holds)
            getattr(database, name)()

        return end

    database.__dict__.update({name: ending(name) for name in _ENDS})


def _hold_all(database: Any, holds: list[Callable[[Connection], None]]) -> None:
    try:
        with database.wrap_database_errors, lent(database.connection) as connection:
            for hold in holds:
                try:
                    hold(connection)
                except sa.exc.DBAPIError as error:
                    raise (error.orig or error) from error
    except BaseException:
        # Django rolls back for errors of the database only, and commits whatever else is left when it ends the block.
        database.rollback()
        raise


def _database(alias: str) -> Any:
    try:
        from django.core.exceptions import ImproperlyConfigured
        from django.db import connections
        from django.utils.connection import ConnectionDoesNotExist
    except ModuleNotFoundError as error:
        raise BadTransaction(f"using={alias!r} names a database of Django's, which is not installed") from error
    try:
        return connections[alias]
    except (ConnectionDoesNotExist, ImproperlyConfigured, TypeError) as error:
        raise BadTransaction(f"using={alias!r} names no database of Django's: {error}") from error
