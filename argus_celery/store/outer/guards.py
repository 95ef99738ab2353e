"""What has to hold just before a transaction of the user's commits; else it is rolled back, and nothing of it stands.

SQLAlchemy tells of a commit before it happens, and what raises there ends it. Sessions tell only of their own commits,
so each of those has the connection below it checked, whoever commits that in the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine

from argus_celery.errors import BadTransaction
from argus_celery.store.outer.alchemy import MANY_DATABASES, AlchemyOuter, connection_of

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from argus_celery.store.engine import Store

End = Callable[[], None]
"""Transactions that begin behind this call are not checked."""


@dataclass(frozen=True, slots=True)
class Guard:
    """One run's say over the transactions of a handle."""

    store: Store
    claim: tuple[str, int]
    """(task id, token)"""
    hold: Callable[[Connection], None] = field(compare=False)
    """Called just before the commit; raises if there is to be none."""
    applies: Callable[[], bool] = field(compare=False)
    """Is a transaction that is begun here now one of this run's?"""


def guard_alchemy(handle: Any, guard: Guard) -> End:
    """Check every transaction that this session or connection commits from now on, also the one under way.

    The handle may be asynchronous. ``BadTransaction`` if the store is not in its database: of an asynchronous one, at
    the commit.
    """
    own = handle() if hasattr(handle, "session_factory") else handle
    driven = _driven(own)
    if isinstance(driven, Connection):
        return _guard_connection(driven, guard, driven is own)
    return _guard_session(driven, guard, driven is own)


def _driven(handle: Any) -> Any:
    """The blocking session or connection that this is, or is around."""
    from sqlalchemy.orm import Session

    found = getattr(handle, "sync_session", None) or getattr(handle, "sync_connection", None) or handle
    if isinstance(found, (Session, Connection)):
        return found
    raise BadTransaction(
        f"guard() takes an SQLAlchemy Session or an open Connection, also an asynchronous one, not"
        f" {type(handle).__name__}; a Django database is named by using="
    )


def _guard_connection(connection: Connection, guard: Guard, blocking: bool) -> End:
    if blocking:
        _check_at_rest(connection, guard)
    watch = _of_connection(connection)
    if connection.in_transaction():
        watch.add(guard)
    return watch.watch(guard)


def _guard_session(session: Session, guard: Guard, blocking: bool) -> End:
    if blocking and session.in_transaction():
        connection = connection_of(session)
        _check_place(connection, guard)
        _of_connection(connection).add(guard)
    elif blocking:
        _check_bind(session, guard)
    return _of_session(session).watch(guard)


def _check_bind(session: Session, guard: Guard) -> None:
    """Without beginning the session's transaction, which is the user's to begin."""
    try:
        bind = session.get_bind()
    except sa.exc.UnboundExecutionError as error:
        raise BadTransaction(MANY_DATABASES) from error
    if isinstance(bind, Engine):
        with bind.connect() as connection:
            _check_place(connection, guard)
    else:
        _check_at_rest(bind, guard)


def _check_at_rest(connection: Connection, guard: Guard) -> None:
    before = connection.in_transaction()
    _check_place(connection, guard)
    if connection.in_transaction() and not before:
        connection.rollback()


def _check_place(connection: Connection, guard: Guard) -> None:
    if connection.dialect.is_async:
        from asyncio import get_running_loop

        from argus_celery.store.outer.asynchronous import JoinedOuter

        JoinedOuter(guard.store, connection, get_running_loop())
    else:
        AlchemyOuter(guard.store, connection)


class _Watch:
    """The guards of one handle."""

    def __init__(self) -> None:
        self._guards: list[Guard] = []

    def watch(self, guard: Guard) -> End:
        self._guards = [*self._applying(), guard]  # without those of runs that are over

        def end() -> None:
            self._guards = [one for one in self._guards if one is not guard]

        return end

    def _applying(self) -> list[Guard]:
        return [one for one in self._guards if one.applies()]


class _OfConnection(_Watch):
    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._due: list[Guard] = []
        """Those of the transaction under way."""
        event.listen(connection, "begin", self._begun)
        event.listen(connection, "begin_twophase", self._begun)
        event.listen(connection, "commit", self._committing)
        event.listen(connection, "prepare_twophase", self._check)
        event.listen(connection, "commit_twophase", self._committing_twophase)
        event.listen(connection, "rollback", self._over)
        event.listen(connection, "rollback_twophase", self._over)

    def add(self, guard: Guard) -> None:
        """Of the transaction under way."""
        if guard not in self._due:
            self._due.append(guard)

    def _begun(self, *_: Any) -> None:
        self._due = self._applying()

    def _committing(self, connection: Connection) -> None:
        try:
            self._check(connection)
        except BaseException:
            # Its locks are given up now, whenever the user rolls it back.
            connection.dialect.do_rollback(connection.connection)
            raise

    def _committing_twophase(self, connection: Connection, _: Any, is_prepared: bool) -> None:
        if not is_prepared:
            self._check(connection)

    def _check(self, connection: Connection, *_: Any) -> None:
        for guard in self._due:
            _check_place(connection, guard)
            guard.hold(connection)

    def _over(self, *_: Any) -> None:
        self._due = []


class _OfSession(_Watch):
    def __init__(self, session: Session) -> None:
        super().__init__()
        event.listen(session, "before_commit", self._committing)

    def _committing(self, session: Session) -> None:
        applying = self._applying()
        if applying:
            below = _of_connection(connection_of(session))
            for guard in applying:
                below.add(guard)


_connections: WeakKeyDictionary[Connection, _OfConnection] = WeakKeyDictionary()
_sessions: WeakKeyDictionary[Session, _OfSession] = WeakKeyDictionary()


def _of_connection(connection: Connection) -> _OfConnection:
    found = _connections.get(connection)
    if found is None:
        found = _connections[connection] = _OfConnection(connection)
    return found


def _of_session(session: Session) -> _OfSession:
    found = _sessions.get(session)
    if found is None:
        found = _sessions[session] = _OfSession(session)
    return found
