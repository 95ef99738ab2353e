"""After: what new tasks wait for before they run. Edges are in the store only: a message is replayed as it was.

Who adds an edge locks the parents' leases, in the order of their ids, and looks whether they have ended; an ending
parent holds its own lease until its outcome is committed. So the edge meets an outcome, or the end meets the edge.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from argus_celery.errors import BadTask, BadTransaction
from argus_celery.flow.pieces import pieces
from argus_celery.flow.runtime import Runtime
from argus_celery.records import NewTask, TaskState
from argus_celery.store import edges, leases, tasks
from argus_celery.store.edges import NewEdge
from argus_celery.store.leases import Lease

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

T = TypeVar("T")

Name = tuple[int, str]
"""A project, and the id or key of a task in it."""


@dataclass
class Links:
    """What the new tasks of one transaction come after."""

    names: dict[Name, str] = field(default_factory=dict)
    """The ids of those that are recorded, or were met earlier in the batch."""
    alive: set[str] = field(default_factory=set)
    """Those that have not ended; of the recorded ones the leases are locked."""
    succeeded: set[str] = field(default_factory=set)
    behind: dict[Name, NewTask] = field(default_factory=dict)
    """What is still to come in the batch."""
    new: list[NewEdge] = field(default_factory=list)

    @property
    def leading(self) -> set[str]:
        """Those that live, and that others come after from now on."""
        return {edge.parent_id for edge in self.new} & self.alive

    @property
    def failed(self) -> set[str]:
        """Those that have ended so that what comes after them is not to run."""
        return {edge.parent_id for edge in self.new if not edge.met} - self.alive

    def add(self, task: NewTask) -> int:
        """Link this new task to what it comes after; for how many of those is it to wait, or not to run?

        From here on others of the batch may come after it.
        """
        parents = list(dict.fromkeys(self._find(task, name) for name in task.after))
        self.note(task, task.id)
        self.alive.add(task.id)
        return self.link(task.id, parents, regardless=task.regardless)

    def link(self, child: str, parents: Iterable[str], *, regardless: bool, first: int = 0) -> int:
        made = [
            NewEdge(child, parent, position, regardless, met=self._is_met(parent, regardless))
            for position, parent in enumerate(parents, first)
        ]
        self.new += made
        return sum(not edge.met for edge in made)

    def note(self, task: NewTask, as_id: str) -> None:
        """From here on others of the batch may come after this one, which is recorded under this id."""
        for name in _names_of(task):
            self.behind.pop(name, None)
            self.names.setdefault(name, as_id)

    def _is_met(self, parent: str, regardless: bool) -> bool:
        return parent not in self.alive and (regardless or parent in self.succeeded)

    def _find(self, task: NewTask, named: str) -> str:
        name = (_project(task), named)
        if name in _names_of(task):
            raise BadTask(f"{_label(task)} cannot come after itself")
        if name in self.names:
            return self.names[name]
        if name not in self.behind:
            raise BadTask(no_such_parent(_label(task), named))
        circle = way(task.id, task.id, self._comes_after)
        if circle:
            raise BadTask(in_a_circle(circle))
        raise BadTask(f"{_label(task)} is to come after {named!r}, which stands behind it: put parents first")

    def _comes_after(self, task_id: str) -> list[str]:
        """Of what is still to come in the batch."""
        here = next((task for task in self.behind.values() if task.id == task_id), None)
        names = [(_project(here), named) for named in here.after] if here is not None else []
        return [self.behind[name].id for name in names if name in self.behind]


def look(
    rt: Runtime,
    connection: Connection,
    batch: Sequence[NewTask],
    known: Mapping[Any, tasks.Known],
    twins: Mapping[str, str],
) -> Links:
    """Find and lock what the tasks of this batch name; the caller adds the new ones in order, and then writes.

    ``known`` and ``twins`` are those that stand for tasks of the batch: under its id or key, or the one of its kind.
    """
    wanted = {(_project(task), named) for task in batch for named in task.after}
    links = Links(find(rt, connection, wanted), behind={name: task for task in batch for name in _names_of(task)})
    named = [task for task in batch if wanted.intersection(_names_of(task))]
    firsts = {first.id for task in named if (first := _first(task, known)) is not None}
    kinds = {twins[task.unique] for task in named if task.unique is not None and task.unique in twins}
    lock(rt, connection, links, {*links.names.values(), *firsts, *kinds})
    return links


def find(rt: Runtime, connection: Connection, wanted: Collection[Name]) -> dict[Name, str]:
    """The ids of the durable tasks of these names. An id stands above a key."""
    found: dict[Name, str] = {}
    for some in pieces(sorted(wanted)):
        places = _places(rt, connection, [named for _, named in some], some)
        found |= {(one.project_id, one.key): one.id for one in places if one.key is not None}
        found |= {(one.project_id, one.id): one.id for one in places}
    return {name: id_ for name, id_ in found.items() if name in wanted}


def lock(rt: Runtime, connection: Connection, links: Links, ids: Collection[str]) -> dict[str, Lease]:
    """Lock the leases of these tasks and see which have ended, and how; returns those of the living.

    Raises ``BadTransaction`` for one that lives and that a transaction of the user's cannot see.
    """
    ordered = sorted(ids)
    rows = {row.task_id: row for some in pieces(ordered) for row in leases.lock_all(rt.store, connection, some)}
    links.alive |= set(rows)
    for some in pieces([id_ for id_ in ordered if id_ not in rows]):
        ended = _places(rt, connection, some)
        hidden = next((one.id for one in ended if one.outcome is None), None)
        if hidden is not None:
            raise BadTransaction(
                f"a task cannot come after {hidden}, which was enqueued after your transaction began and is hidden by"
                " its isolation level: begin the transaction anew, or enqueue both in it"
            )
        links.succeeded |= {one.id for one in ended if one.outcome is TaskState.SUCCEEDED}
    return rows


def _places(rt: Runtime, connection: Connection, ids: Sequence[str], keys: Sequence[Name] = ()) -> list[tasks.Place]:
    """In a transaction of the user's, what that has written, and what is committed by now."""
    found = tasks.places(connection, ids, keys)
    if rt.store.outer is not None:
        found += rt.store.latest(connection, lambda beside: tasks.places(beside, ids, keys))
    return found


def write(connection: Connection, links: Links, recorded: Collection[str]) -> None:
    """Insert the edges; those of ``recorded`` that lead have their leases say so."""
    for some in pieces(links.new):
        edges.insert(connection, some)
    for some_ids in pieces(sorted(links.leading & set(recorded))):
        leases.lead(connection, some_ids)


def way(start: str, goal: str, onward: Callable[[str], Iterable[str]]) -> list[str]:
    """The shortest way of at least one step; empty if there is none."""
    came_from: dict[str, str] = {}
    todo = [start]
    while todo and goal not in came_from:
        found = [(here, there) for here in todo for there in onward(here)]
        todo = []
        for here, there in found:
            if there not in came_from:
                came_from[there] = here
                todo.append(there)
    if goal not in came_from:
        return []
    steps = [goal, came_from[goal]]
    while steps[-1] != start:
        steps.append(came_from[steps[-1]])
    return steps[::-1]


def no_such_parent(label: str, named: str) -> str:
    return (
        f"{label} is to come after {named!r}, but its project has no durable task of this id or key: enqueue the"
        " parent first, in the same project (a later element of a chain is recorded when its turn comes)"
    )


def in_a_circle(steps: Sequence[str]) -> str:
    return f"these tasks would wait for each other for ever: {' after '.join(steps)}"


def _first(task: NewTask, known: Mapping[Any, tasks.Known]) -> tasks.Known | None:
    """The task that is recorded under the key or id of this one."""
    return known.get((_project(task), task.key)) or known.get(task.id)


def _names_of(task: NewTask) -> list[Name]:
    return [(_project(task), named) for named in (task.key, task.id) if named is not None]


def _project(task: NewTask) -> int:
    assert task.project_id is not None
    return task.project_id


def _label(task: NewTask) -> str:
    return f"{task.name}[{task.id}]"
