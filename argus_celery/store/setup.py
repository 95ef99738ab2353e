"""Make the tables, bring them up to date, and refuse a store that is not this version's or not this app's.

Expand first, contract a release later: old and new workers run side by side on one store.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.errors import StoreError, StoreUnavailable
from argus_celery.store.engine import Store
from argus_celery.store.schema import about

HEAD = "0005"
_version = sa.table("argus_version", sa.column("version_num"))


def init(store: Store) -> str:
    """Run the migrations that are missing and record the app; returns the version. Doing it twice changes nothing."""
    with _outage_named(store), store.engine.begin() as connection, _alone(store, connection):
        _migrate(connection)
        _record_app(store, connection)
    return HEAD


def make(store: Store) -> None:
    """For the embedded default: make the tables, or bring them up to date; then check."""
    found = version(store)
    if found is None or found < HEAD:
        init(store)
    check(store)


def check(store: Store) -> None:
    """Raise ``StoreError``, naming the command that helps, unless this version and this app own the store."""
    found = version(store)
    command = f"celery -A {store.app_name or 'your_app'} argus init"
    name = store.url.render_as_string(hide_password=True)
    if found is None:
        raise StoreError(f"the store {name} has no Argus tables: run  {command}")
    if found < HEAD:
        raise StoreError(f"the store {name} has version {found}, and this Argus needs {HEAD}: run  {command}")
    owner = _owner(store)
    if owner and store.app_name and owner != store.app_name:
        raise StoreError(
            f"the store {name} belongs to the app {owner!r}, and this one is {store.app_name!r}: call both"
            f" Celery({owner!r}), or give each app its own database (argus_store_url)"
        )


def how_it_is_made(store: Store) -> str:
    """Of an SQLite file that is not there yet."""
    command = f"celery -A {store.app_name or 'your_app'} argus init"
    return f"{Path(str(store.url.database)).absolute()} is made by the first worker or call of a task, or by  {command}"


def version(store: Store) -> str | None:
    """The version of the store's tables; None if there are none."""
    with _outage_named(store), store.dialect.reading(store.engine).connect() as connection:
        return version_on(connection)


def version_on(connection: Connection) -> str | None:
    """The same, as this connection sees it."""
    if not sa.inspect(connection).has_table("argus_version"):
        return None
    return connection.execute(sa.select(_version.c.version_num)).scalar()


def _owner(store: Store) -> str | None:
    with _outage_named(store), store.dialect.reading(store.engine).connect() as connection:
        return connection.execute(sa.select(about.c.value).where(about.c.name == "app")).scalar()


@contextmanager
def _outage_named(store: Store) -> Iterator[None]:
    try:
        yield
    except sa.exc.DBAPIError as error:
        if not store.dialect.is_outage(error):
            raise
        name = store.url.render_as_string(hide_password=True)
        raise StoreUnavailable(f"the store {name} cannot be reached: {error.orig}") from error


@contextmanager
def _alone(store: Store, connection: Connection) -> Iterator[None]:
    """Two that migrate at once take turns. SQLite's transaction is the only writer already."""
    if store.dialect_name == "postgresql":
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(hashtext('argus init'))"))
    if store.dialect_name != "mysql":
        yield
        return
    connection.execute(sa.text("SELECT GET_LOCK('argus init', 60)"))
    try:
        yield
    finally:
        connection.execute(sa.text("SELECT RELEASE_LOCK('argus init')"))


def _migrate(connection: Connection) -> None:
    # Slow to import, and needed once in a store's life.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _record_app(store: Store, connection: Connection) -> None:
    if store.app_name:
        store.dialect.insert_new(connection, about, [{"name": "app", "value": store.app_name}])
