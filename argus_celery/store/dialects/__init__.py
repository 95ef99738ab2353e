"""One contract for three databases; each file holds only that database's difference, and its reason."""

from __future__ import annotations

from sqlalchemy.engine import URL

from argus_celery.errors import StoreError
from argus_celery.store.dialects.base import Dialect

__all__ = ["Dialect", "dialect_of"]


def dialect_of(url: URL) -> Dialect:
    """The dialect for this URL; raises ``StoreError`` for a database Argus does not know."""
    backend = url.get_backend_name()
    if backend == "sqlite":
        from argus_celery.store.dialects.sqlite import SQLite

        return SQLite()
    if backend == "postgresql":
        from argus_celery.store.dialects.postgresql import PostgreSQL

        return PostgreSQL()
    if backend in ("mysql", "mariadb"):
        from argus_celery.store.dialects.mysql import MySQL

        return MySQL()
    raise StoreError(f"argus_store_url names {backend}; Argus works on sqlite, postgresql, mysql and mariadb")
