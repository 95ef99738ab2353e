"""Chords: the parts of a header are counted in the store, and what a full one leads to is recorded once.

A durable task's part is counted by the transaction that completes it (``flow.complete``); here are the others: of
ordinary tasks, and of those that end without a run. Whoever counts the last part fires, or else whoever sweeps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from argus_celery.flow.enqueue import Recorded, announce, past_rivals, record
from argus_celery.flow.publish import send
from argus_celery.flow.runtime import Runtime
from argus_celery.records import ChordPart, NewChord, NewTask, OwedChord, PartCount, ProjectStatus
from argus_celery.store import chords, projects

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

T = TypeVar("T")


def begin(rt: Runtime, chord: NewChord, *, anew: bool) -> None:
    """Record a chord before its header is sent; ``anew``: also if it was sent before. Raises ``StoreUnavailable``."""

    def write(connection: Connection) -> None:
        if anew:
            chords.forget_sent(connection, chord.id)
        chords.insert(rt.store, connection, [chord])

    _written(rt, write)


def resize(rt: Runtime, chord_id: str, size: int) -> PartCount:
    """The header was sent whole: so many parts will come."""
    return _written(rt, lambda connection: chords.resize(rt.store, connection, chord_id, size))


def add(rt: Runtime, chord_id: str) -> bool:
    """One part more will come; False if the store does not know the chord."""
    return _written(rt, lambda connection: chords.add(connection, chord_id))


def is_known(rt: Runtime, chord_id: str) -> bool:
    """Does the store count this chord?"""
    return rt.store.statement(lambda connection: chords.is_known(connection, chord_id))


def part_returned(rt: Runtime, part: ChordPart, project_id: int | None = None) -> PartCount:
    """Count a part that no completion counts; a second time it changes nothing."""
    return _written(rt, lambda connection: chords.count(rt.store, connection, part, project_id))


def _written(rt: Runtime, work: Callable[[Connection], T]) -> T:
    return past_rivals(lambda: rt.store.transaction(work))


def owed(rt: Runtime, limit: int = 100) -> list[str]:
    """Chords whose parts are all in and of which nothing has come yet."""
    return rt.store.statement(lambda connection: chords.owed(rt.store, connection, limit))


def read_owed(rt: Runtime, chord_id: str) -> OwedChord | None:
    """What is to be fired; None if it was."""
    return rt.store.read(lambda connection: chords.read_owed(rt.store, connection, chord_id))


@dataclass(frozen=True, slots=True)
class Leading:
    """What a full chord leads to."""

    tasks: Sequence[NewTask] = ()
    chords: Sequence[NewChord] = ()
    sends: bool = False
    """Messages of ordinary tasks are to be sent after the commit, and then ``sent`` is called."""


def settle(rt: Runtime, chord: OwedChord, project_id: int, leading: Leading) -> bool:
    """Record what the full chord leads to, and that it is not owed any more; False if nothing is to be sent here.

    Another was first, or the project was cancelled, in which nothing follows. Raises ``ProjectClosed`` if it has
    ended otherwise.
    """
    rt.window.note(rt.store, leading.tasks)
    recorded = _written(rt, lambda connection: _settle(rt, connection, chord, project_id, leading))
    if recorded is None:
        return False
    if recorded.enqueued:
        announce(rt, leading.tasks, recorded)
    send(rt, recorded.dispatches)
    return True


def _settle(
    rt: Runtime, connection: Connection, chord: OwedChord, project_id: int, leading: Leading
) -> Recorded | None:
    project = projects.shared(rt.store, connection, {project_id}).get(project_id)
    is_cancelled = project is not None and project.status is ProjectStatus.CANCELLED
    if not chords.settle(rt.store, connection, chord.id, sends=leading.sends and not is_cancelled) or is_cancelled:
        return None
    if chord.recorded:
        return Recorded()
    if leading.chords:
        chords.insert(rt.store, connection, leading.chords)
    return record(rt, connection, leading.tasks, look=True) if leading.tasks else Recorded()


def sent(rt: Runtime, chord_id: str) -> None:
    """The ordinary tasks that the chord leads to were sent."""
    rt.store.transaction(lambda connection: chords.sent(connection, chord_id))
