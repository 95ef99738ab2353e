"""Tick: a beat entry is due. One task for each due instant, however many beats send it and wherever they die.

The entry's row says up to which instant it has ticked, and moves on in the transaction that records the tasks. Each
task has the entry and its instant as its key as well. Lock order: the tick, then what an enqueue locks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from argus_celery.flow.afterwards import afterwards
from argus_celery.flow.checks import check
from argus_celery.flow.enqueue import Recorded, announce, past_rivals, placed_and_recorded, record
from argus_celery.flow.runtime import Runtime
from argus_celery.records import Enqueued, NewTask
from argus_celery.store import ticks
from argus_celery.store.names import is_possible
from argus_celery.store.ticks import Ticked

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

MOST = 500
"""Due instants that are made up for at once, the newest: one transaction of an enqueue."""
LONGEST_ENTRY = 200
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KEY = "beat:"


def entry_name(name: str) -> str:
    """The name itself, or where no store can hold it, or no room is left for an instant, one made of it."""
    if is_possible(name) and len(name) <= LONGEST_ENTRY:
        return name
    return f"{ascii(name)[:100]}#{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()}"


def key_of(entry: str, due_at: int) -> str:
    """The key of the one task of this entry and instant."""
    instant = (_EPOCH + timedelta(milliseconds=due_at)).isoformat(timespec="milliseconds")
    return f"{_KEY}{entry}@{instant}"


def due_of(key: str | None) -> datetime | None:
    """The due instant in the key of a beat's task; None in any other key."""
    if key is None or not key.startswith(_KEY) or "@" not in key:
        return None
    try:
        return datetime.fromisoformat(key.rpartition("@")[2])
    except ValueError:
        return None


def look(rt: Runtime, entry: str) -> Ticked:
    """Where the entry stands."""
    return rt.store.statement(lambda connection: ticks.read(rt.store, connection, entry))


def standing(rt: Runtime, entries: Collection[str]) -> dict[str, datetime]:
    """The last due instant of each of these entries that was sent; of one that never was, none."""
    found = rt.store.statement(lambda connection: ticks.standing(connection, entries)) if entries else {}
    return {entry: _EPOCH + timedelta(milliseconds=due_at) for entry, due_at in found.items()}


def tick(rt: Runtime, entry: str, last: int | None, due_at: int, new: Sequence[NewTask]) -> list[Enqueued] | None:
    """Record the tasks of the instants up to ``due_at`` and publish them; None if the entry does not stand at ``last``.

    Raises what ``enqueue`` raises, with nothing written and the entry where it stood.
    """
    check(rt, new)

    def commit(batch: Sequence[NewTask]) -> Recorded | None:
        def write(connection: Connection) -> Recorded | None:
            if not ticks.move(rt.store, connection, entry, last, due_at):
                return None
            return record(rt, connection, batch, look=True, strict=True) if batch else Recorded()

        rt.window.note(rt.store, batch)
        return past_rivals(lambda: rt.store.transaction(write))

    batch, recorded = placed_and_recorded(rt, new, commit)
    if recorded is None:
        return None
    afterwards(rt, recorded.dispatches, partial(announce, rt, batch, recorded))
    return list(recorded.enqueued)
