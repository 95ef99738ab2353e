"""How a reader of the store learns that something may have come, at next to no cost while nothing does."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from argus_celery.errors import StoreUnavailable
from argus_celery.store.engine import Store


class Waking:
    """Polling, in a rhythm that follows how long nothing has come: MySQL and MariaDB have no other way.

    Ask ``heard`` after each ``pause``, or when ``fileno`` is readable; ``wait`` does both.
    """

    shortest, longest = 0.01, 0.7
    look_at_least = 0.0
    """Seconds after which one looks though nothing was heard; 0: hearing is looking."""

    def __init__(self) -> None:
        self._active_at = time.monotonic()

    def fileno(self) -> int | None:
        return None

    def heard(self, names: Collection[str]) -> Collection[str]:
        """Those of the names for which something may have come since the last call."""
        return names

    def active(self) -> None:
        """Something came: more may follow soon."""
        self._active_at = time.monotonic()

    def pause(self) -> float:
        """Seconds until the next ``heard``."""
        return min(self.longest, max(self.shortest, (time.monotonic() - self._active_at) / 10))

    def wait(self, seconds: float) -> None:
        time.sleep(min(seconds, self.pause()))

    def close(self) -> None:
        pass


class FileWatch(Waking):
    """SQLite: whoever commits changes the write-ahead log's file. Two stat calls touch neither locks nor pages."""

    shortest, longest = 0.004, 0.02
    look_at_least = 1.0
    YOUNG = 0.02
    """A file changed less than this ago may change again within the same tick of the file system's clock."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._paths = (path + "-wal", path)
        self._seen = self._stamp()
        self._young_until = 0.0

    def heard(self, names: Collection[str]) -> Collection[str]:
        stamp, now = self._stamp(), time.monotonic()
        if stamp != self._seen:
            self._seen, self._young_until = stamp, now + self.YOUNG
            return names
        return names if now < self._young_until else ()

    def _stamp(self) -> tuple[tuple[int, int] | None, ...]:
        return tuple(_stamp_of(path) for path in self._paths)


def _stamp_of(path: str) -> tuple[int, int] | None:
    try:
        facts = os.stat(path)
    except OSError:
        return None
    return facts.st_mtime_ns, facts.st_size


class Listener(Waking):
    """PostgreSQL: LISTEN on a connection of its own, whose socket an event loop can watch."""

    longest = 5.0
    look_at_least = 5.0

    def __init__(self, store: Store, channel: str, *, first: str | None = None) -> None:
        super().__init__()
        self._pid = os.getpid()
        self._connection = _listening(store, channel, first)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._connection.fileno(), selectors.EVENT_READ)

    def fileno(self) -> int:
        return int(self._connection.fileno())

    def heard(self, names: Collection[str]) -> Collection[str]:
        try:
            told = {notice.payload for notice in self._connection.notifies(timeout=0)}
        except Exception as error:
            raise StoreUnavailable(f"the listening connection is lost: {error}") from error
        return told.intersection(names)

    def wait(self, seconds: float) -> None:
        self._selector.select(seconds)

    def close(self) -> None:
        self._selector.close()
        if self._pid == os.getpid():  # a fork's copy shares the socket
            self._connection.close()


def _listening(store: Store, channel: str, first: str | None) -> Any:
    """A connection that the pool has given away for good."""
    connection = store.engine.raw_connection()
    driver: Any = connection.driver_connection
    connection.detach()
    driver.rollback()
    driver.autocommit = True
    for statement in filter(None, (first, f"LISTEN {channel}")):
        driver.execute(statement)
    return driver


def waking(store: Store, channel: str, *, first: str | None = None) -> Waking:
    """The best way this database and its driver have. ``first`` is what a connection that listens does before."""
    if store.dialect_name == "sqlite":
        return FileWatch(os.path.abspath(str(store.url.database)))
    if store.url.get_driver_name() == "psycopg":
        try:
            return Listener(store, channel, first=first)
        except (sa.exc.DBAPIError, store.engine.dialect.loaded_dbapi.Error) as error:
            raise StoreUnavailable(f"the database cannot be reached: {error}") from error
    return Waking()
