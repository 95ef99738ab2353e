"""What is refused before anything is written, whatever the database would say to it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from argus_celery.errors import BadTask, PayloadTooLarge
from argus_celery.flow.runtime import Runtime
from argus_celery.records import NewTask

LONGEST = 255
HIGHEST = 2**31


def check(rt: Runtime, new: Sequence[NewTask]) -> None:
    """Raises ``BadTask`` or ``PayloadTooLarge``, which name the task and say what to do."""
    for task in new:
        _check_names(task)
        _check_numbers(task)
        _check_payload(rt, task)


def check_name(what: str, name: Any) -> None:
    """A text of 1 to 255 characters that every store holds and compares alike."""
    if not isinstance(name, str):
        raise BadTask(f"{what} must be a text, not {name!r}")
    if not 1 <= len(name) <= LONGEST:
        raise BadTask(f"{what} has 1 to {LONGEST} characters, not {len(name)}: {name[:50]!r}")
    if "\0" in name or any("\ud800" <= letter <= "\udfff" for letter in name):
        raise BadTask(f"{what} has a character that no database can hold: {name[:50]!r}")
    if name != name.rstrip(" "):
        raise BadTask(f"{what} must not end with a blank, which not every database tells apart: {name[:50]!r}")


def _check_names(task: NewTask) -> None:
    label = f"{task.name}[{task.id}]"
    named = {"the task id": task.id, "the name": task.name, "the queue": task.message.queue}
    optional = {
        "the key (argus_key)": task.key,
        "the project (argus_project)": task.project,
        "the parent id": task.parent_id,
        "the root id": task.root_id,
        "the group id": task.group_id,
    }
    for what, name in (named | {what: name for what, name in optional.items() if name is not None}).items():
        check_name(f"{what} of {label}", name)


def _check_numbers(task: NewTask) -> None:
    if not isinstance(task.priority, int) or not -HIGHEST <= task.priority < HIGHEST:
        raise BadTask(f"the priority of {task.name}[{task.id}] must be a whole number, not {task.priority!r}")


def _check_payload(rt: Runtime, task: NewTask) -> None:
    limit, size = rt.settings.max_payload, len(task.message.body)
    if size > limit:
        raise PayloadTooLarge(
            f"the arguments of {task.name}[{task.id}] take {size} bytes, above argus_max_payload ({limit}):"
            " pass a reference to the data instead, or raise the setting"
        )


def milliseconds(what: str, seconds: float) -> int:
    """A finite number of seconds in milliseconds."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not math.isfinite(seconds):
        raise BadTask(f"{what} must be a finite number of seconds, not {seconds!r}")
    return round(seconds * 1000)
