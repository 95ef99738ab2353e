"""After the commit of an SQLAlchemy connection, which tells only what comes before one.

Sessions tell what comes after, but one that stands on a connection's transaction commits nothing; so it is the
connection that is followed, whoever commits it. This file alone knows these private names of SQLAlchemy:
``_commit_impl`` and ``_commit_twophase_impl`` of a connection, ``_savepoint`` and ``_previous_nested`` of a savepoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import event
from sqlalchemy.engine import Connection

from argus_celery.store.outer.base import Deliver, outside

_COMMITS = ("_commit_impl", "_commit_twophase_impl")


class Following:
    """What is noted in the transactions of one connection. A savepoint that is rolled back takes its notes along."""

    def __init__(self, connection: Connection) -> None:
        self._root: Any = None
        self._entries: list[tuple[frozenset[str], Any]] = []
        self._deliver: Deliver | None = None
        event.listen(connection, "rollback", self._rolled_back)
        event.listen(connection, "rollback_twophase", self._rolled_back)
        event.listen(connection, "rollback_savepoint", self._savepoint_rolled_back)

    def note(self, connection: Connection, deliver: Deliver, entry: Any) -> None:
        root = connection.get_transaction()
        if root is not self._root:
            self._root, self._entries = root, []
            for name in _COMMITS:
                _call_behind(connection, name, self._committed)
        self._deliver = deliver
        self._entries.append((frozenset(_savepoints(connection)), entry))

    def _committed(self) -> None:
        entries, deliver = [entry for _, entry in self._entries], self._deliver
        self._root, self._entries, self._deliver = None, [], None
        if entries and deliver is not None:
            with outside():
                deliver(entries)

    def _rolled_back(self, connection: Connection, *_: Any) -> None:
        self._root, self._entries, self._deliver = None, [], None
        for name in _COMMITS:
            connection.__dict__.pop(name, None)

    def _savepoint_rolled_back(self, connection: Connection, name: str, _: Any) -> None:
        self._entries = [(names, entry) for names, entry in self._entries if name not in names]


_followed: WeakKeyDictionary[Connection, Following] = WeakKeyDictionary()


def following(connection: Connection) -> Following:
    """The one that follows this connection."""
    found = _followed.get(connection)
    if found is None:
        found = _followed[connection] = Following(connection)
    return found


def _call_behind(connection: Connection, name: str, call: Any) -> None:
    """Let the connection call it behind this transaction's commit, once."""

    def commit(*arguments: Any) -> None:
        for one in _COMMITS:
            connection.__dict__.pop(one, None)
        getattr(connection, name)(*arguments)
        call()

    connection.__dict__[name] = commit


def _savepoints(connection: Connection) -> Iterator[str]:
    """The names of those that are open."""
    savepoint: Any = connection.get_nested_transaction()
    while savepoint is not None:
        yield savepoint._savepoint
        savepoint = savepoint._previous_nested
