"""Keep: the result of a task that is not durable, for those who use the store as their result backend.

It becomes a row that has ended, in a project of its own. The row of a durable task is never touched here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from argus_celery.flow import steer
from argus_celery.flow.checks import check_name
from argus_celery.flow.enqueue import past_rivals
from argus_celery.flow.runtime import Runtime
from argus_celery.records import Message, TaskState
from argus_celery.store import tasks
from argus_celery.store.names import is_possible

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

PROJECT = "argus.results"
_NO_MESSAGE = Message(b"", "", "", {}, {}, "", "", "")


def keep(rt: Runtime, task_id: str, name: str, state: TaskState, result: bytes, *, abandoned: bool = False) -> None:
    """Store the result under this id; a later one replaces it, but none a success. Raises ``BadTask`` for an id that
    no store holds, and ``StoreUnavailable``.

    A state before the end is kept as ``running``. ``abandoned``: the task never came, for what leads to it failed.
    """
    if abandoned and not is_possible(task_id):
        return  # it cannot come for that very reason, and nobody could ask for it
    check_name("the task id", task_id)
    project_id = steer.open_project(rt, PROJECT)

    def write(connection: Connection) -> None:
        if tasks.replace_kept(rt.store, connection, project_id, task_id, state, result, abandoned=abandoned):
            return
        if tasks.known(connection, [task_id], []):
            return
        new = {"id": task_id, "project_id": project_id, "name": name, "queue": "", "priority": 0, "max_losses": 0}
        kept = {"outcome": state, "result": result, "abandoned": int(abandoned)}
        tasks.insert_kept(rt.store, connection, {**new, **kept}, _NO_MESSAGE)

    past_rivals(lambda: rt.store.transaction(write))
