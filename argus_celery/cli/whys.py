"""Why a task is where it is, in a few words: what it waits for, or what it failed of."""

from __future__ import annotations

from collections.abc import Iterator

from argus_celery.cli.common import span, waits_of
from argus_celery.records import TaskInfo, TaskState

SHORT = 8
"""Letters of an id, which are enough to tell it from others of a project and to ask for it."""
MOST = 3


def why(task: TaskInfo, now: int) -> str | None:
    """None: nothing is to be said."""
    return last_line(task.error) if task.state.ended else "; ".join(_waits(task, now)) or None


def _waits(task: TaskInfo, now: int) -> Iterator[str]:
    if task.parked:
        yield "parked with its project"
    if task.waits_for:
        yield f"waits for {ids_of(task.waits_for)}"
    if task.limit is not None:
        yield f"waits for {told_limit(task)}"
    if task.suspended is not None:
        yield str(waits_of(task.suspended))
    elif task.state is TaskState.WAITING and task.due_at is not None:
        left = task.due_at - now
        yield f"due in {span(left)}" if left > 0 else f"due for {span(left)}, waits for room with the broker"


def ids_of(ids: tuple[str, ...]) -> str:
    """``3f21ab90, 77ac0012 and 5 more``: by the beginnings of their ids."""
    shown = ", ".join(one[:SHORT] for one in ids[:MOST])
    return shown + (f" and {len(ids) - MOST} more" if len(ids) > MOST else "")


def told_limit(task: TaskInfo) -> str:
    """The limit in whose line it stands, and what that allows."""
    assert task.limit is not None
    return f"the limit of {task.limit.name} ({task.limit})"


def last_line(error: str | None) -> str | None:
    """What a person looks at first in a traceback."""
    lines = (error or "").strip().splitlines()
    return lines[-1] if lines else None
