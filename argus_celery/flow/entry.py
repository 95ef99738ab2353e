"""Entry: new tasks come under their limits. What finds no room is recorded in a line, and not in dispatch's sight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from argus_celery.flow.admit import Desk
from argus_celery.flow.runtime import Runtime
from argus_celery.records import NewTask
from argus_celery.store import limits
from argus_celery.store.limits import ADMITTED, BY_LIMIT, IDLE, WAITING
from argus_celery.store.projects import Project

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection


class Entry:
    """The limits of a batch, which are locked if any of its tasks is under one."""

    def __init__(
        self, rt: Runtime, connection: Connection, batch: Sequence[NewTask], found: Mapping[int, Project]
    ) -> None:
        self._rt, self._connection = rt, connection
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._parked: set[str] = set()
        bounds = {bound for task in batch for bound in task.limits}
        of_projects = {project.limit for project in found.values() if project.limited}
        self._desk: Desk | None = None
        if bounds or of_projects:
            if bounds:
                limits.define(rt.store, connection, bounds)
            self._desk = Desk(rt, connection, {bound.name for bound in bounds} | of_projects)

    def names_of(self, task: NewTask, project: Project) -> list[str]:
        names = {bound.name for bound in task.limits}
        return sorted(names | {project.limit} if project.limited else names)

    def line_for(self, task: NewTask, names: Sequence[str], *, paused: bool) -> str | None:
        """In whose line it has to wait; None if it may go, or is not due yet."""
        is_due = not paused and not task.delay_ms and task.due_at is None
        if self._desk is None or not is_due or self._desk.has_room(names):
            return None
        return self._desk.line_for(names)

    def come(self, task: NewTask, names: Sequence[str], line: str | None, *, direct: bool) -> None:
        if self._desk is None or not names:
            return
        if direct:
            self._desk.enter(names)
        if line is not None:
            self._parked.add(task.id)
        states = {name: ADMITTED if direct else WAITING if name == line else IDLE for name in names}
        place = -task.priority
        self._rows[task.id] = [
            {"task_id": task.id, "name": name, "state": state, "place": place} for name, state in states.items()
        ]

    def parking(self, task_id: str) -> dict[str, int]:
        """What its lease says of it."""
        limited = {"limited": int(task_id in self._rows)}
        return limited | {"paused": BY_LIMIT} if task_id in self._parked else limited

    def write(self) -> None:
        """Behind the leases."""
        rows = [row for rows in self._rows.values() for row in rows]
        if rows:
            limits.enter(self._rt.store, self._connection, rows)
        if self._desk is not None:
            self._desk.note()
