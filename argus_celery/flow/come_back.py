"""Come back: what was abandoned for coming after a task waits for it again once that lives again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from argus_celery.flow.pieces import pieces
from argus_celery.flow.runtime import Runtime
from argus_celery.records import NOBODY, Message
from argus_celery.store import bounds, chords, edges, leases, limits, revoked, tasks
from argus_celery.store.projects import Project
from argus_celery.store.tasks import Ended

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What the app knows and the store does not."""

    lease_ttl: Callable[[str], int | None]
    """The lease TTL (ms) of a task of this name, where it has one of its own."""
    leads_to: Callable[[Message], Sequence[str]]
    """The ids of the tasks that are to follow the one with this message: they were told that it failed."""


AS_SET = Knowledge(lambda name: None, lambda message: ())
"""Nothing: leases have the TTL of the setting."""


def bring_back(rt: Runtime, connection: Connection, project: Project, parents: Collection[str], app: Knowledge) -> None:
    """Put back what was abandoned behind these tasks, which live again, if no other failure stands before it."""
    found = [id_ for some in pieces(sorted(parents)) for id_ in edges.abandoned_below(connection, some)]
    given_up = [one for some in pieces(dict.fromkeys(found)) for one in tasks.abandoned(connection, some)]
    rows = {one.id: one for one in alone(connection, given_up)}
    back = _without_the_forbidden(connection, rows)
    if not back:
        return
    above = {one for some in pieces(back) for more in edges.parents_of(connection, some).values() for one in more}
    outside = [id_ for some in pieces(sorted(above - set(back))) for id_ in _lock(rt, connection, some)]
    for some in pieces(outside):
        leases.lead(connection, some)
    for some in pieces(back):
        live_again(rt, connection, project, [rows[id_] for id_ in some], app, waiting=True)
    for some in pieces(back):
        edges.derive(connection, some)
        for number, ids in edges.counted(connection, some).items():
            leases.wait_for(connection, ids, number)


def live_again(
    rt: Runtime,
    connection: Connection,
    project: Project,
    found: Sequence[Ended],
    app: Knowledge,
    *,
    waiting: bool = False,
) -> None:
    """These ended tasks get new leases above their fences, and what they led to is pending again.

    ``waiting``: how many they wait for is written after it.
    """
    put_back = [one.id for one in found]
    rows = [_lease_row(rt, one, project, app.lease_ttl(one.name)) for one in found]
    leases.insert(rt.store, connection, [{**row, "waits": int(waiting)} for row in rows])
    _limit(rt, connection, found, project)
    messages = tasks.messages(connection, put_back).values()
    following = [id_ for message in messages for id_ in app.leads_to(message)]
    chords.take_back(rt.store, connection, [*put_back, *following])
    tasks.put_back(connection, put_back)
    revoked.forget(connection, put_back)
    tasks.forget_abandoned(connection, following)


def _without_the_forbidden(connection: Connection, found: Mapping[str, Ended]) -> list[str]:
    """Without those that come after another task which has ended badly and does not come back."""
    forbidden = [pair for some in pieces(list(found)) for pair in edges.forbidden(connection, some)]
    staying: set[str] = set()
    while more := {child for child, parent in forbidden if parent not in found or parent in staying} - staying:
        staying |= more
    return [id_ for id_ in found if id_ not in staying]


def alone(connection: Connection, found: Sequence[Ended]) -> list[Ended]:
    """Without those of whose kind another lives, or is put back here."""
    marks = {one.unique_key for one in found if one.unique_key is not None}
    taken = set(leases.alive_of(connection, marks)) if marks else set()
    alone: list[Ended] = []
    for one in found:
        if one.unique_key not in taken:
            alone.append(one)
        if one.unique_key is not None:
            taken.add(one.unique_key)
    return alone


def _lock(rt: Runtime, connection: Connection, ids: Collection[str]) -> list[str]:
    return [row.task_id for row in leases.lock_all(rt.store, connection, ids)]


def _lease_row(rt: Runtime, task: Ended, project: Project, ttl_ms: int | None) -> dict[str, Any]:
    """Due now, whatever expiry it had."""
    return {
        "task_id": task.id,
        "project_id": project.id,
        "queue": task.queue,
        "priority": task.priority,
        "token": task.fence + 1,
        "holder": NOBODY,
        "delay": 0,
        "due_at": None,
        "expires_in": None,
        "expires_at_abs": None,
        "ttl": ttl_ms or rt.lease_ttl_ms,
        "paused": int(project.paused),
        "dispatches": 0,
        "follows": 1,
        "leads": int(task.leads),
        "unique_key": task.unique_key,
        "limited": int(bool(task.limits) or project.limited),
    }


def _limit(rt: Runtime, connection: Connection, found: Sequence[Ended], project: Project) -> None:
    """Under the limits they had, and that of the project; the next dispatch sees whether there is room."""
    own = {one.id: bounds.load(one.limits) for one in found}
    limits.define(rt.store, connection, {bound for some in own.values() for bound in some})
    of_project = {project.limit} if project.limited else set()
    rows = [
        {"task_id": one.id, "name": name, "state": limits.IDLE, "place": -one.priority}
        for one in found
        for name in sorted({bound.name for bound in own[one.id]} | of_project)
    ]
    if rows:
        limits.enter(rt.store, connection, rows)
