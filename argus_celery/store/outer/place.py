"""Is a connection of the user's one to the store's own database? URLs do not tell: hosts have many names."""

from __future__ import annotations

import os
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.errors import BadTransaction, StoreError
from argus_celery.store.outer.base import outside
from argus_celery.store.setup import HEAD, version_on

if TYPE_CHECKING:
    from argus_celery.store.engine import Store
    from argus_celery.store.outer.base import Outer

_PLACES = {
    # The number of the table tells databases and search paths apart, the start time tells servers apart.
    "postgresql": "SELECT current_database(), CAST(pg_postmaster_start_time() AS text),"
    " CAST(CAST(to_regclass('argus_leases') AS oid) AS bigint)",
    "mysql": "SELECT DATABASE(), @@hostname, @@port, @@datadir",
}

_checked: WeakKeyDictionary[Store, WeakSet[Any]] = WeakKeyDictionary()


def check_place(outer: Outer, connection: Connection, source: Any) -> None:
    """Raise ``BadTransaction`` unless it is. Asked once for each ``source`` of connections, say an engine."""
    store = outer.store
    if is_checked(store, source):
        return
    theirs = "mysql" if connection.dialect.name == "mariadb" else connection.dialect.name
    if theirs != store.dialect_name or not _is_here(outer, connection):
        raise BadTransaction(
            f"the session is in another database than the store, {store.url.render_as_string(hide_password=True)}:"
            " one transaction cannot hold both. Enqueue after the commit, with a key, or move the store"
            " (argus_store_url) into the session's database"
        )
    _checked.setdefault(store, WeakSet()).add(source)


def is_checked(store: Store, source: Any) -> bool:
    """Was it found to be so?"""
    return source in _checked.get(store, ())


def _is_here(outer: Outer, connection: Connection) -> bool:
    if outer.store.dialect_name == "sqlite":
        return _is_file(outer.store, connection)
    theirs = _place(outer.store, connection)
    with outside():
        ours = outer.apart(lambda: outer.store.statement(lambda own: _place(outer.store, own)))
    return theirs == ours


def _place(store: Store, connection: Connection) -> Hashable:
    return tuple(connection.execute(sa.text(_PLACES[store.dialect_name])).one())


def _is_file(store: Store, connection: Connection) -> bool:
    """Also: have its tables been made? On SQLite we could not make them while the user's transaction writes."""
    listed = connection.exec_driver_sql("PRAGMA database_list").all()
    path = next((row[2] for row in listed if row[1] == "main"), "")
    if not (path and os.path.exists(str(store.url.database)) and os.path.samefile(path, str(store.url.database))):
        return False
    found = version_on(connection)
    if found is None or found < HEAD:
        raise StoreError(
            f"the store {store.url} has no tables of this version yet, and SQLite lets nobody make them beside your"
            " transaction: run  celery argus init, or open the project before the transaction begins"
        )
    return True
