"""Rows of dependencies: which task comes after which, and whether it was told of the parent's end.

An edge is *met* once its parent has ended and the child was told. ``waits`` of the child's lease counts those that are
not; both change in one transaction, behind the lock of the child's lease.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.records import TaskState
from argus_celery.store.schema import edges, leases, tasks

AT_ONCE = 500
"""Ids in one statement."""

c = edges.c
_child, _parent = tasks.alias("child"), tasks.alias("parent")


@dataclass(frozen=True, slots=True)
class NewEdge:
    child_id: str
    parent_id: str
    position: int
    regardless: bool
    met: bool


@dataclass(frozen=True, slots=True)
class Edge:
    """A dependency whose child was not told yet."""

    child_id: str
    parent_id: str
    regardless: bool
    outcome: TaskState | None
    """The parent's; None while it lives."""
    is_over: bool
    """The parent has ended, or was pruned."""

    @property
    def forbids(self) -> bool:
        """Is the child not to run, because of how the parent has ended?"""
        return not self.regardless and self.outcome not in (None, TaskState.SUCCEEDED)


# --- writing -----------------------------------------------------------------------------------------------------


def insert(connection: Connection, new: Sequence[NewEdge]) -> None:
    rows = [
        {
            "child_id": one.child_id,
            "parent_id": one.parent_id,
            "position": one.position,
            "regardless": int(one.regardless),
            "met": int(one.met),
        }
        for one in new
    ]
    if rows:
        connection.execute(sa.insert(edges), rows)


def meet(connection: Connection, parents: Collection[str], children: Collection[str]) -> None:
    """Each of these children was told of the end of each of these parents that it has."""
    between = (c.parent_id.in_(parents), c.child_id.in_(children), c.met == 0)
    connection.execute(sa.update(edges).where(*between).values(met=1))


def derive(connection: Connection, children: Collection[str]) -> None:
    """Whether these children were told, by whether the parents live. The caller has locked the leases of all."""
    alive = sa.select(leases.c.task_id).where(leases.c.task_id == c.parent_id).exists()
    met = sa.case((alive, 0), else_=1)
    connection.execute(sa.update(edges).where(c.child_id.in_(children)).values(met=met))


# --- an ended parent ---------------------------------------------------------------------------------------------


def waiting_for(connection: Connection, parents: Collection[str], limit: int) -> list[str]:
    """Up to ``limit`` children of these parents that were not told yet, by id."""
    unmet = sa.select(c.child_id).where(c.parent_id.in_(parents), c.met == 0)
    return list(connection.execute(unmet.distinct().order_by(c.child_id).limit(limit)).scalars())


def unmet(connection: Connection, children: Collection[str], parents: Collection[str] | None = None) -> list[Edge]:
    """The edges of these children (to these parents) that they were not told of."""
    columns = (c.child_id, c.parent_id, c.regardless, tasks.c.outcome, tasks.c.id)
    query = sa.select(*columns).select_from(edges.outerjoin(tasks, tasks.c.id == c.parent_id))
    query = query.where(c.child_id.in_(children), c.met == 0)
    if parents is not None:
        query = query.where(c.parent_id.in_(parents))
    return [_edge(row) for row in connection.execute(query.order_by(c.child_id, c.position))]


def _edge(row: Any) -> Edge:
    outcome = TaskState(row.outcome) if row.outcome else None
    return Edge(row.child_id, row.parent_id, bool(row.regardless), outcome, outcome is not None or row.id is None)


# --- an added edge, a task that is put back ----------------------------------------------------------------------


def parents_of(connection: Connection, children: Collection[str]) -> dict[str, list[str]]:
    """The parents of each of these children, in the order in which they were given."""
    query = sa.select(c.child_id, c.parent_id).where(c.child_id.in_(children)).order_by(c.child_id, c.position)
    found: dict[str, list[str]] = {}
    for child_id, parent_id in connection.execute(query):
        found.setdefault(child_id, []).append(parent_id)
    return found


def policies(connection: Connection, child_id: str) -> dict[str, bool]:
    """The parents of this child, and whether it runs whatever becomes of them."""
    rows = connection.execute(sa.select(c.parent_id, c.regardless).where(c.child_id == child_id))
    return {row.parent_id: bool(row.regardless) for row in rows}


def children_of(connection: Connection, parents: Collection[str]) -> list[str]:
    """What comes directly after these."""
    return list(connection.execute(sa.select(c.child_id).where(c.parent_id.in_(parents)).distinct()).scalars())


def next_position(connection: Connection, child_id: str) -> int:
    last = connection.execute(sa.select(sa.func.max(c.position)).where(c.child_id == child_id)).scalar_one()
    return 0 if last is None else int(last) + 1


def above(connection: Connection, ids: Collection[str]) -> list[tuple[str, str]]:
    """Every (child, parent) that these tasks wait for, directly or not."""
    up = sa.select(c.child_id, c.parent_id).where(c.child_id.in_(ids)).cte("up", recursive=True)
    further = sa.select(c.child_id, c.parent_id).join(up, c.child_id == up.c.parent_id)
    whole = up.union(further)
    return [(row.child_id, row.parent_id) for row in connection.execute(sa.select(whole))]


def abandoned_below(connection: Connection, ids: Collection[str]) -> list[str]:
    """The tasks that come after these and were abandoned, directly or behind others that were."""
    given_up: tuple[Any, ...] = (_child.c.id == c.child_id, _child.c.abandoned > 0)
    first = sa.select(c.child_id).join(_child, sa.and_(*given_up)).where(c.parent_id.in_(ids))
    down = first.cte("down", recursive=True)
    further = sa.select(c.child_id).join(_child, sa.and_(*given_up)).join(down, c.parent_id == down.c.child_id)
    whole = down.union(further)
    return sorted(connection.execute(sa.select(whole.c.child_id)).scalars())


def forbidden(connection: Connection, children: Collection[str]) -> list[tuple[str, str]]:
    """(child, parent) of these children where the parent has ended badly and the child is not to run for that."""
    bad = (_parent.c.outcome.is_not(None), _parent.c.outcome != TaskState.SUCCEEDED, c.regardless == 0)
    query = sa.select(c.child_id, c.parent_id).join(_parent, _parent.c.id == c.parent_id)
    return [(row.child_id, row.parent_id) for row in connection.execute(query.where(c.child_id.in_(children), *bad))]


def counted(connection: Connection, children: Collection[str]) -> dict[int, list[str]]:
    """These children by the number of parents of which they were not told."""
    waits = sa.func.sum(sa.case((c.met == 0, 1), else_=0))
    by_number: dict[int, list[str]] = {}
    for child_id, number in connection.execute(
        sa.select(c.child_id, waits).where(c.child_id.in_(children)).group_by(c.child_id)
    ):
        by_number.setdefault(int(number), []).append(child_id)
    return by_number


def misled(connection: Connection, limit: int) -> list[str]:
    """Tasks whose ``waits`` is not the number of parents that live and of which they were not told.

    Its cost follows the number of tasks that wait for others.
    """
    lease, parent = leases.c, leases.alias("parent_lease")
    alive = sa.select(sa.func.count()).select_from(edges.join(parent, parent.c.task_id == c.parent_id))
    alive = alive.where(c.child_id == lease.task_id, c.met == 0).correlate(leases)
    waiting = (lease.holder == "", lease.paused.in_((0, 1)), lease.waits > 0)
    query = sa.select(lease.task_id).where(*waiting, lease.waits != alive.scalar_subquery())
    return list(connection.execute(query.limit(limit)).scalars())
