"""The tasks of a canvas, and the ids that a caller gave them: those that no store can hold are refused at the call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from argus_celery.flow.checks import check_name

_INSIDE = ("tasks", "task", "header", "body")
_BESIDE = ("link", "link_error", "chord")
_FOLLOWING = ("chain", "chord", "callbacks", "errbacks")


def following(body: Any) -> list[Any]:
    """What follows a task, as its message tells."""
    embed = body if isinstance(body, Mapping) else body[2]  # of task protocol 1, which is for ordinary tasks, or 2
    return [embed.get(part) for part in _FOLLOWING]


def check_ids(canvas: Any) -> None:
    """Every task of a canvas that was given an id. Raises ``BadTask``."""
    for signature in signatures(canvas):
        task_id = (signature.get("options") or {}).get("task_id")
        if task_id is not None:
            check_name(f"the task id of {signature['task']}, which follows another,", task_id)


def signatures(canvas: Any) -> Iterator[Mapping[str, Any]]:
    """Every task of a canvas, and what is linked to it."""
    waiting: list[Any] = [canvas]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Mapping) and isinstance(one.get("task"), str):
            yield one
            kwargs, options = one.get("kwargs") or {}, one.get("options") or {}
            # Only what Celery itself keeps there is a canvas; the arguments of a user's task are the user's.
            if one["task"].startswith("celery."):
                waiting += [kwargs.get(name) for name in _INSIDE]
            waiting += [options.get(name) for name in _BESIDE]
        elif isinstance(one, (list, tuple)):  # a lazy header is not looked at before it is sent
            waiting.extend(one)  # += would become one with Celery's lazy list
