"""Limits: who finds a slot goes out, who finds none stands in a line."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from tests.model.plain.state import (
    BY_LIMIT,
    BY_PAUSE,
    DISPATCH_TTL,
    DISPATCH_TTL_MAX,
    LIVE,
    NOBODY,
    QUEUE,
    SLOTS,
    Ambiguous,
    State,
    Task,
)


class Slots(State):
    def _admit(self, rows: Sequence[Task], *, keeps: bool = False) -> list[Task]:
        """Those that find a slot of each of their limits, and whom these let in before; the rest stand in a line."""
        limited = [task for task in rows if task.limits and self._lease(task.id).holder == NOBODY]
        self._mind_order([self._due_of(task) for task in limited])
        parked = []
        taken: list[Task] = []
        for task in limited:
            free = all(self._free(name, taken) for name in task.limits)
            if free and (keeps or not any(self._line(name) for name in task.limits)):
                taken.append(task)
            else:
                task.line, task.has_slots, self._lease(task.id).paused = (
                    self._line_for(task.limits, taken),
                    False,
                    BY_LIMIT,
                )
                parked.append(task)
        for task in taken:
            self._has_slot(task)
        let_in = self._let_in({name for task in limited for name in task.limits}, taken)
        return [*let_in, *(task for task in rows if task not in parked)]

    def _give_up(self, rows: Sequence[Task]) -> list[Task]:
        """Slots and places in a line; who goes out instead, in the queue's hands already."""
        names = {name for task in rows for name in task.limits}
        for task in rows:
            task.has_slots, task.line = False, None
        return self._to_queue(self._let_in(names, [])) if names else []

    def _looked_at(self) -> list[Task]:
        names, self.to_look_at = self.to_look_at, set()
        return self._to_queue(self._let_in(names, [])) if names else []

    def _let_in(self, names: Collection[str], taken: list[Task]) -> list[Task]:
        let_in: list[Task] = []
        for name in sorted(names):
            for task in self._line(name):
                project, lease = self.projects[task.project], self._lease(task.id)
                if not self._free(name, [*taken, *let_in]):
                    break
                if project.status not in LIVE or (lease.expires is not None and lease.expires <= self.now):
                    task.line, lease.paused = None, 0
                elif project.paused:
                    task.line, lease.paused = None, BY_PAUSE
                elif all(self._free(other, [*taken, *let_in]) for other in task.limits):
                    self._has_slot(task)
                    let_in.append(task)
                else:
                    task.line = self._line_for(task.limits, [*taken, *let_in], full_only=True)
        return let_in

    def _has_slot(self, task: Task) -> None:
        task.has_slots, task.line, self._lease(task.id).paused = True, None, 0

    def _line(self, name: str) -> list[Task]:
        """Who has waited longest goes first."""
        line = sorted((task for task in self.tasks.values() if task.line == name), key=lambda task: task.since)
        self._mind_order([task.since for task in line])
        return line

    def _mind_order(self, instants: Sequence[object]) -> None:
        """Which of two that came at one instant goes first is nobody's promise."""
        if not self.any_order and len(set(instants)) < len(instants):
            raise Ambiguous

    def _has_room(self, names: Iterable[str]) -> bool:
        return all(self._free(name) and not self._line(name) for name in names)

    def _free(self, name: str, coming: Collection[Task] = ()) -> bool:
        """A slot is taken while somebody holds the task: the queue, or a worker."""
        of_it = [task for task in self.tasks.values() if name in task.limits and task.lease and task.has_slots]
        used = sum(self._lease(task.id).holder != NOBODY for task in of_it)
        return used + sum(name in task.limits for task in coming) < SLOTS[name]

    def _line_for(self, names: Iterable[str], coming: Collection[Task] = (), *, full_only: bool = False) -> str:
        """Of those without room, the limit that lets in the fewest."""
        closed = [name for name in names if not self._free(name, coming) or (self._line(name) and not full_only)]
        return min(closed, key=lambda name: (SLOTS[name], name))

    def _to_queue(self, rows: Sequence[Task]) -> list[Task]:
        for task in rows:
            lease = self._lease(task.id)
            lapses = self.now + min(DISPATCH_TTL * 2**lease.dispatches, DISPATCH_TTL_MAX)
            lease.token += lease.holder != QUEUE
            lease.holder, lease.dispatches = QUEUE, lease.dispatches + 1
            lease.due = lapses if lease.expires is None else min(lapses, lease.expires)
        return list(rows)
