"""Admit: a task under limits goes out when each of them has a slot, and else waits in the line of one that has none.

The rows of the limits are locked in the order of their names, behind the leases and the tasks. Of what waits, leases
are locked by whoever has a slot to give, which skips those that others have locked; the limit is then looked at again,
as it is where more wait than one look takes. ``due_at`` of a limit says when, and dispatch keeps to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from argus_celery.flow.runtime import Runtime
from argus_celery.records import NOBODY
from argus_celery.store import limits, projects
from argus_celery.store.leases import Lease
from argus_celery.store.limits import Room

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

AT_ONCE = 100
"""How many one look at a limit takes out of its line."""


def admit(rt: Runtime, connection: Connection, rows: Sequence[Lease], *, keeps: bool = False) -> list[Lease]:
    """Of these locked rows those that may go out; the rest is parked. Whom a limit lets in before them is among them.

    ``keeps``: they had their slots until now, and nobody goes before them.
    """
    limited = [row for row in rows if row.limited and row.holder == NOBODY]
    if not limited:
        return list(rows)
    under = limits.names_of(connection, [row.task_id for row in limited])
    desk = Desk(rt, connection, {name for names in under.values() for name in names})
    parked = {row.task_id for row in limited if not desk.take(row.task_id, under.get(row.task_id, ()), keeps=keeps)}
    let_in = desk.close()
    return [*let_in, *(row for row in rows if row.task_id not in parked)]


def give_up(rt: Runtime, connection: Connection, ids: Collection[str], *, ended: bool = False) -> list[Lease]:
    """These tasks, whose leases are locked or gone, need their slots no more: who may go out instead."""
    under = limits.names_of(connection, ids)
    if not under:
        return []
    (limits.leave if ended else limits.step_out)(connection, list(under))
    return Desk(rt, connection, {name for names in under.values() for name in names}).close()


def look(rt: Runtime, connection: Connection) -> list[Lease]:
    """Who may go out of the limits that are due to be looked at."""
    names = limits.due(rt.store, connection, AT_ONCE)
    return Desk(rt, connection, names).close() if names else []


class Desk:
    """The limits that one transaction deals with, locked."""

    def __init__(self, rt: Runtime, connection: Connection, names: Collection[str]) -> None:
        self._rt, self._connection = rt, connection
        self.rooms = limits.lock(rt.store, connection, names)
        self._before = {name: (room.tat, room.due_at) for name, room in self.rooms.items()}
        self._admitted: list[str] = []
        self._waiting: dict[str, list[str]] = {}
        self._again: set[str] = set()
        """Limits in whose line somebody was passed over, to be looked at soon."""

    # --- who comes -----------------------------------------------------------------------------------------------

    def has_room(self, names: Iterable[str]) -> bool:
        """Is a slot free of each of these limits, and nobody in its line?"""
        return not any(room.waits or not is_free(room) for room in self._of(names))

    def enter(self, names: Iterable[str]) -> None:
        """Count one in, whose row says so already."""
        for room in self._of(names):
            _count(room)

    def line_for(self, names: Iterable[str]) -> str:
        """In whose line to wait: of those without room that which lets in the fewest."""
        closed = [room for room in self._of(names) if room.waits or not is_free(room)]
        name = min(closed, key=_breadth).name
        self.rooms[name].waits = True
        return name

    def take(self, task_id: str, names: Sequence[str], *, keeps: bool) -> bool:
        """Give this task, which is due, its slots, or a place in a line."""
        free = all(is_free(room) for room in self._of(names)) if keeps else self.has_room(names)
        if free:
            self.enter(names)
            self._admitted.append(task_id)
        else:
            self._waiting.setdefault(self.line_for(names), []).append(task_id)
        return free

    # --- who waits -----------------------------------------------------------------------------------------------

    def close(self) -> list[Lease]:
        """Let in who waits and finds room, and note what is left to do; returns their locked rows."""
        self._write()
        let_in: list[Lease] = []
        for name in sorted(self.rooms):
            let_in += self._let_in(self.rooms[name])
        self.note()
        return let_in

    def _let_in(self, room: Room) -> list[Lease]:
        left, let_in = AT_ONCE, []
        while left > 0 and room.waits and is_free(room) and room.name not in self._again:
            ids = limits.next_in_line(self._connection, room.name, min(left, _free(room)))
            room.waits = bool(ids)
            left -= len(ids)
            let_in += self._try(room, ids) if ids else []
        return let_in

    def _try(self, room: Room, ids: Sequence[str]) -> list[Lease]:
        rows = limits.lock_parked(self._rt.store, self._connection, ids)
        self._pass_over(room, [id_ for id_ in ids if id_ not in rows])
        ready = self._without_the_stopped([rows[id_] for id_ in ids if id_ in rows])
        under = limits.names_of(self._connection, [row.task_id for row in ready])
        self._open({name for names in under.values() for name in names} - self.rooms.keys())
        let_in = [row for row in ready if self._goes(room, row.task_id, under[row.task_id])]
        self._write()
        return let_in

    def _goes(self, room: Room, task_id: str, names: Sequence[str]) -> bool:
        if not is_free(room):
            return False  # it stays the first in this line
        if any(name not in self.rooms for name in names):
            self._again.add(room.name)  # another has locked one of them
            return False
        closed = [other for other in self._of(names) if not is_free(other)]
        if closed:
            other = min(closed, key=_breadth)
            other.waits = True
            self._waiting.setdefault(other.name, []).append(task_id)
            return False
        self.enter(names)
        self._admitted.append(task_id)
        return True

    def _open(self, names: Collection[str]) -> None:
        """More limits, out of their order: none that another has locked."""
        if names:
            opened = limits.lock(self._rt.store, self._connection, names, skip_locked=True)
            self._before |= {name: (room.tat, room.due_at) for name, room in opened.items()}
            self.rooms |= opened

    def _pass_over(self, room: Room, ids: Sequence[str]) -> None:
        """Locked by others, or not parked any more."""
        if not ids:
            return
        parked = limits.still_parked(self._connection, ids)
        stray = [id_ for id_ in ids if id_ not in parked]
        if stray:
            limits.step_out(self._connection, stray)
        if parked:
            self._again.add(room.name)

    def _without_the_stopped(self, rows: Sequence[Lease]) -> list[Lease]:
        """What is paused is due at its resume; what has expired or was cancelled is ended by the next dispatch."""
        status = projects.read(self._connection, {row.project_id for row in rows})
        ready, paused, over = [], [], []
        for row in rows:
            project = status.get(row.project_id)
            if project is None or not project.status.live or row.expired:
                over.append(row.task_id)
            elif project.paused:
                paused.append(row.task_id)
            else:
                ready.append(row)
        for ids, how in ((paused, limits.BY_PAUSE), (over, limits.UNPARKED)):
            if ids:
                limits.step_out(self._connection, ids, how)
        return ready

    # --- writing -------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        if self._admitted:
            limits.admit(self._connection, self._admitted)
        for name in sorted(self._waiting):
            limits.wait(self._connection, name, self._waiting[name])
        self._admitted, self._waiting = [], {}

    def note(self) -> None:
        """Keep the pace of the starts, and when to look again."""
        for room in self.rooms.values():
            room.due_at = self._due(room)
        changed = [room for name, room in self.rooms.items() if self._before[name] != (room.tat, room.due_at)]
        if changed:
            limits.note(self._connection, sorted(changed, key=lambda room: room.name))

    def _due(self, room: Room) -> int | None:
        """When somebody in its line may go though nothing ends: at once, at the next start, or never."""
        if not room.waits or (room.concurrency is not None and room.used >= room.concurrency):
            return None
        return max(room.now, _next_start(room)) // 1000 + (0 if is_free(room) else 1)

    def _of(self, names: Iterable[str]) -> list[Room]:
        return [self.rooms[name] for name in names if name in self.rooms]


# --- what a limit allows -------------------------------------------------------------------------------------------


def is_free(room: Room) -> bool:
    return _free(room) > 0


def _free(room: Room) -> int:
    """How many may go out now, as far as one look goes."""
    slots = AT_ONCE if room.concurrency is None else room.concurrency - room.used
    if room.spacing is None:
        return min(slots, AT_ONCE)
    starts = (room.now - _next_start(room)) // room.spacing + 1 if room.now >= _next_start(room) else 0
    return min(slots, starts, AT_ONCE)


def _next_start(room: Room) -> int:
    """The generic cell rate: ``tat`` is when the next start is due if none comes early, of which ``burst`` - 1 may."""
    if room.spacing is None:
        return room.now
    return max(room.tat, room.now) - (room.burst - 1) * room.spacing


def _count(room: Room) -> None:
    room.used += 1
    if room.spacing is not None:
        room.tat = max(room.tat, room.now) + room.spacing


def _breadth(room: Room) -> tuple[float, str]:
    return (float("inf") if room.concurrency is None else room.concurrency), room.name
