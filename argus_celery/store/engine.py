"""The store's connections: one engine per process, whole transactions repeated on deadlock, outages named.

An engine never crosses a fork: it is kept under the process id and made anew in a child.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine

from argus_celery.errors import BadTransaction, StoreError, StoreUnavailable
from argus_celery.store.dialects import Dialect, dialect_of
from argus_celery.store.forks import Gate
from argus_celery.store.outer.base import Outer, outer_here, outside

T = TypeVar("T")

REPEATS = 10
PATIENCE = 25.0
"""Seconds after which a conflict is not repeated any more: one wait for SQLite's only writer is as long."""
_DRIVERS = {"postgresql": ("postgres", "psycopg"), "mysql": ("mysql", "pymysql")}
"""The extra that brings a driver, and the driver."""


class DuplicateRow(StoreError):
    """A row with this unique key is there already; flows look and go on."""


class Store:
    """The SQL store of one app. Opening it connects to nothing.

    ``clock_shift`` (milliseconds) is added to the database's clock; tests use it to make time pass.
    """

    def __init__(
        self, url: str | URL, *, app_name: str = "", on_connect: Callable[[Store], None] | None = None
    ) -> None:
        self.url = _parsed(url)
        self.app_name = app_name
        self.dialect: Dialect = dialect_of(self.url)
        self.clock_shift = 0
        self.outage = Outage()
        self._on_connect = on_connect
        self._gate = Gate(self._close_idle) if self.dialect.minds_forks else None
        self._engines: dict[int, Engine] = {}
        self._ways: dict[Callable[[Engine], Engine], tuple[Engine, Engine]] = {}
        """Engines that were made of others: the one, and what came of it. Making one costs as much as a statement."""
        self._prepared: set[int] = set()
        self.hot: dict[Any, Any] = {}
        """What ``store.hot`` has compiled."""

    def __getstate__(self) -> dict[str, Any]:
        """A spawned child gets the URL and makes its own engine."""
        return {"url": self.url, "app_name": self.app_name, "clock_shift": self.clock_shift, "hook": self._on_connect}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["url"], app_name=state["app_name"], on_connect=state["hook"])  # type: ignore[misc]
        self.clock_shift = state["clock_shift"]

    @property
    def dialect_name(self) -> str:
        return self.dialect.name

    @property
    def is_absent(self) -> bool:
        """Is it a file that is not there yet? Who only looks does not connect to it, which would make it."""
        return self.dialect.is_absent(self.url)

    @property
    def engine(self) -> Engine:
        pid = os.getpid()
        engine = self._engines.get(pid)
        return engine if engine is not None else self._new_engine(pid)

    def _new_engine(self, pid: int) -> Engine:
        if pid not in self._engines:
            inherited = [self._engines[other] for other in self._engines if other != pid]
            self._engines = {pid: self._made()}
            for engine in inherited:
                engine.dispose(close=False)
        return self._engines[pid]

    def _made(self) -> Engine:
        try:
            return self.dialect.create_engine(self.url)
        except ModuleNotFoundError as error:
            name = self.url.render_as_string(hide_password=True)
            raise StoreError(
                f"the store {name} needs the driver {error.name}, which is not installed: {self._remedy(error.name)}"
            ) from error

    def _remedy(self, missing: str | None) -> str:
        extra, driver = _DRIVERS.get(self.dialect_name, (None, missing))
        if extra is None:
            return "install it"
        install = f'pip install "argus-celery[{extra}]"'
        return install if missing == driver else f"{install} and name it in the URL, {self.dialect_name}+{driver}://…"

    @property
    def now(self) -> sa.ColumnElement[int]:
        """The database's clock in integer milliseconds, read by the statement it stands in."""
        now = self.dialect.now()
        return now + self.clock_shift if self.clock_shift else now

    def read_now(self, connection: Connection) -> int:
        """``now`` as a number."""
        return int(connection.execute(sa.select(self.now)).scalar_one())

    def transaction(self, work: Callable[[Connection], T]) -> T:
        """Run ``work`` in one transaction and commit. Deadlocks repeat the whole; an outage is ``StoreUnavailable``.

        Inside a transaction of the user's it is a savepoint of that one, and nothing is repeated.
        """
        if (outer := self.outer) is not None:
            return outer.write(work)

        def attempt() -> T:
            with self.engine.begin() as connection:
                return work(connection)

        return self._repeated(attempt)

    def statement(self, work: Callable[[Connection], T]) -> T:
        """Run ``work``, which is one statement, in autocommit."""
        if (outer := self.outer) is not None:
            return outer.write(work)

        def attempt() -> T:
            with self._as(self.dialect.autocommit).connect() as connection:
                return work(connection)

        return self._repeated(attempt)

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run ``work``, which only reads, in one transaction that keeps no writer out."""
        if (outer := self.outer) is not None:
            return outer.write(work)

        def attempt() -> T:
            with self._as(self.dialect.reading).begin() as connection:
                return work(connection)

        return self._repeated(attempt)

    def _as(self, way: Callable[[Engine], Engine]) -> Engine:
        engine, found = self.engine, self._ways.get(way)
        if found is None or found[0] is not engine:
            found = self._ways[way] = (engine, way(engine))
        return found[1]

    @property
    def outer(self) -> Outer | None:
        """The user's transaction that is written into here."""
        outer = outer_here()
        return outer if outer is not None and outer.store is self and not outer.is_over else None

    def check_outside(self, what: str) -> None:
        """Raise ``BadTransaction`` inside a transaction of the user's, whose end this would wait for."""
        if self.outer is not None:
            raise BadTransaction(
                f"{what} inside a transaction, whose end that would wait for: call it behind the block"
            )

    def apart(self, work: Callable[[], T]) -> tuple[T, bool]:
        """Do what is to stand whatever becomes of the user's transaction; is it committed by now?

        SQLite has one writer, which is the user: there it is part of their transaction after all.
        """
        outer = self.outer
        if outer is None:
            return work(), True
        if self.dialect.one_writer:
            return work(), False
        with outside():
            return outer.apart(work), True

    def latest(self, connection: Connection, work: Callable[[Connection], T]) -> T:
        """What is committed by now. The user's transaction may see the state of its beginning, so look beside it."""
        if self.outer is None or self.dialect.one_writer or connection.engine is self.engine:
            return work(connection)
        return self.apart(lambda: self.read(work))[0]

    @contextmanager
    def open(self) -> Iterator[Connection]:
        """A transaction whose work is not ours to repeat: the user's. Only an outage is named anew."""
        try:
            with self._gate.inside() if self._gate else nullcontext():
                self._prepare()
                with self.engine.begin() as connection:
                    yield connection
        except sa.exc.DBAPIError as error:
            if self.dialect.is_outage(error):
                raise self._away(error) from error
            raise
        self.outage.over()

    def dispose(self) -> None:
        """Close this process's connections."""
        engine = self._engines.pop(os.getpid(), None)
        if engine is not None:
            engine.dispose()

    def _close_idle(self) -> None:
        engine = self._engines.get(os.getpid())
        if engine is not None:
            engine.dispose()

    def _repeated(self, attempt: Callable[[], T]) -> T:
        ends = time.monotonic() + PATIENCE
        for repeat in range(REPEATS):
            try:
                with self._gate.inside() if self._gate else nullcontext():
                    self._prepare()
                    result = attempt()
            except sa.exc.DBAPIError as error:
                if self.dialect.is_conflict(error) and repeat < REPEATS - 1 and time.monotonic() < ends:
                    time.sleep(random.uniform(0, 0.01 * 2**repeat))
                    continue
                raise self.named(error) from error
            except (sa.exc.TimeoutError, OSError) as error:
                raise self._away(error) from error
            except self.engine.dialect.loaded_dbapi.OperationalError as error:
                # A pooled connection that died is met while it is checked out, outside SQLAlchemy's wrapping.
                self._close_idle()
                raise self._away(error) from error
            self.outage.over()
            return result
        raise AssertionError("unreachable")

    def _prepare(self) -> None:
        """Once per process, before its first use. The hook uses ``engine`` directly; two threads may both run it."""
        pid = os.getpid()
        if self._on_connect is not None and pid not in self._prepared:
            self._on_connect(self)
            self._prepared.add(pid)

    def named(self, error: sa.exc.DBAPIError) -> Exception:
        """The error as ours, where it is one that callers can tell."""
        if self.dialect.is_outage(error):
            return self._away(error)
        if self.dialect.is_missing_table(error):
            return StoreError(
                f"the store {self.url.render_as_string(hide_password=True)} has no Argus tables"
                f" (or of another version): run  celery -A {self.app_name or 'your_app'} argus init"
            )
        if isinstance(error, sa.exc.IntegrityError):
            return DuplicateRow(str(error.orig))
        return error

    def _away(self, error: Exception) -> StoreUnavailable:
        self.outage.begin()
        return StoreUnavailable(
            f"the store {self.url.render_as_string(hide_password=True)} cannot be reached: {error.__cause__ or error}"
        )


class Outage:
    """What this process saw of the store being away, in monotonic seconds."""

    def __init__(self) -> None:
        self.since: float | None = None
        self.ended_at = float("-inf")

    def begin(self) -> None:
        if self.since is None:
            self.since = time.monotonic()

    def over(self) -> None:
        if self.since is not None:
            self.since, self.ended_at = None, time.monotonic()

    def recent(self, seconds: float) -> bool:
        """Is the store away, or was it until less than ``seconds`` ago?"""
        return self.since is not None or time.monotonic() - self.ended_at < seconds


def _parsed(url: str | URL) -> URL:
    try:
        return sa.make_url(url)
    except sa.exc.ArgumentError as error:
        raise StoreError(f"argus_store_url {url!r} is not an SQLAlchemy URL, for example sqlite:///argus.db") from error
