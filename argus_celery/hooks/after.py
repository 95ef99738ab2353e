"""What a call says it comes after: results, ids or keys, as ids and keys; and what cannot wait is refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from celery.canvas import Signature
from celery.result import ResultBase, ResultSet

from argus_celery.config import did_you_mean
from argus_celery.errors import BadTask
from argus_celery.hooks.ids import signatures
from argus_celery.records import NewTask

AFTER, IF_FAILED = "argus_after", "argus_if_failed"
_IF_FAILED = ["abandon", "run"]


def parents_in(given: Any) -> list[str]:
    """The ids and keys in what a caller gave: texts, results, groups of results, or a list of such."""
    return list(dict.fromkeys(_parents_in(given)))


def _parents_in(given: Any) -> Iterator[str]:
    if given is None:
        return
    if isinstance(given, str):
        yield given
    elif isinstance(given, ResultSet):
        yield from _parents_in(given.results)
    elif isinstance(given, (ResultBase, Signature)) and isinstance(getattr(given, "id", None), str):
        yield given.id
    elif isinstance(given, Iterable) and not isinstance(given, (bytes, Mapping)):
        for one in given:
            yield from _parents_in(one)
    else:
        raise BadTask(f"after takes results, ids or keys of tasks that are enqueued already, not {given!r:.100}")


def runs_regardless(if_failed: Any) -> bool:
    """``if_failed`` in the words of the store."""
    if if_failed not in (None, *_IF_FAILED):
        hint = did_you_mean(str(if_failed), _IF_FAILED)
        raise BadTask(f"if_failed must be 'abandon' or 'run', not {if_failed!r}.{hint}")
    return bool(if_failed == "run")


def check_following(ours: Mapping[str, Any], follows: list[Any]) -> None:
    """What follows a task by its message waits for that one, and for no others: else the call is refused."""
    bodies = [one for one in follows if isinstance(one, Mapping)]  # a chord has one; all else comes in lists
    if ours.get(AFTER) and any(AFTER in (one.get("options") or {}) for one in bodies):
        raise BadTask(_NO_CHORD)
    _refuse_parents(follows)


def check_canvas(canvas: Any) -> None:
    """The same of a canvas, before any of it is sent. What is made lazily is looked at task by task."""
    waiting = [canvas]
    while waiting:
        one = waiting.pop()
        inside, options = one.get("kwargs") or {}, one.get("options") or {}
        _refuse_parents([options.get("link"), options.get("link_error")])
        begins, follows = _parts(one.get("subtask_type"), inside)
        waiting += [part for part in begins if isinstance(part, Mapping)]
        _refuse_parents(follows)


def _parts(kind: str | None, inside: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    """With what a canvas begins, and what follows that."""
    tasks = _list(inside.get("header" if kind == "chord" else "tasks"))
    match kind:
        case "chain":
            return tasks[:1], tasks[1:]
        case "chord":
            return tasks, [inside.get("body")]
        case "group":
            return tasks, []
    return [], []


def _list(tasks: Any) -> list[Any]:
    if isinstance(tasks, Mapping):  # the header of a chord may be a group
        tasks = (tasks.get("kwargs") or {}).get("tasks")
    return list(tasks) if type(tasks) in (list, tuple) else []


def _refuse_parents(canvas: Any) -> None:
    for one in signatures(canvas):
        if parents_in((one.get("options") or {}).get(AFTER)):
            raise BadTask(_follows(one["task"]))


def _follows(label: str) -> str:
    return (
        f"{label} follows another task in a canvas, and cannot come after others too (argus_after): give that to the"
        " task the canvas begins with, or enqueue this one by itself, with all that it comes after"
    )


def linked(task: NewTask, ours: Mapping[str, Any], *, continues: bool) -> NewTask:
    """The task with what its call says it comes after. ``continues``: it follows a run that has just ended."""
    parents = parents_in(ours.get(AFTER))
    regardless = runs_regardless(ours.get(IF_FAILED))
    if not parents:
        return task
    if continues:
        raise BadTask(_follows(f"{task.name}[{task.id}]"))
    return replace(task, after=tuple(parents), regardless=regardless)


_NO_CHORD = (
    "a chord cannot come after other tasks: give each task of its header its own after, or enqueue the chord in the"
    " body of a task that comes after them"
)


def check_waits(signature: Any) -> None:
    """A task, a chain that begins with one, and a group of these can wait; anything else is refused before a send."""
    kind, inside = signature.get("subtask_type"), signature.get("kwargs") or {}
    if kind == "chain" and inside.get("tasks") and not (inside["tasks"][0].get("subtask_type")):
        return
    if kind == "group":
        for one in inside.get("tasks") or ():
            check_waits(one)
    elif kind in ("chain", "chord"):
        raise BadTask(_NO_CHORD if kind == "chord" else "a chain that comes after other tasks has to begin with a task")
