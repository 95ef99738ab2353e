"""A database driver that waits outside Python stops every greenlet with it, the one that renews too."""

from __future__ import annotations

import importlib
from typing import Any

from argus_celery.errors import SettingError
from argus_celery.flow.runtime import Runtime

BLOCKING = ("psycopg2", "mysqldb", "mariadbconnector", "oursql")
"""Drivers in C that know no greenlets. SQLite's waits are short and its store is one host's, so it may be used."""


def check_driver(pool: Any, rt: Runtime) -> None:
    """Raises ``SettingError`` where the pool is one of greenlets and the store's driver would block it."""
    if not getattr(pool, "is_green", False):
        return
    driver = rt.store.url.get_driver_name()
    if driver in BLOCKING:
        raise SettingError(
            f"the driver {driver} of argus_store_url blocks every task of a pool of greenlets while it waits:"
            " use psycopg or pymysql, or the pool prefork or threads"
        )
    if driver == "psycopg" and _waits_in_c():
        raise SettingError(
            "psycopg waits in C here, which blocks every task of a pool of greenlets: set PSYCOPG_IMPL=python or"
            " PSYCOPG_WAIT_FUNC=wait_select in the worker's environment, or use the pool prefork, threads or gevent"
        )


def _waits_in_c() -> bool:
    """Psycopg sees by itself that gevent has patched the process, and nothing of eventlet."""
    waiting = importlib.import_module("psycopg.waiting")
    return waiting.wait is getattr(waiting, "wait_c", None) is not None
