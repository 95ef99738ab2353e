"""What is refused before anything is written, whatever the database would say to it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from argus_celery.config import KEY_CONFLICTS, LONGEST, fault_of_seconds
from argus_celery.errors import BadEvent, BadStep, BadTask, PayloadTooLarge
from argus_celery.flow.runtime import Runtime
from argus_celery.records import NewTask
from argus_celery.store.names import fault_of

HIGHEST = 2**31
SLEEP = "current.sleep(...)"


def check(rt: Runtime, new: Sequence[NewTask]) -> None:
    """Raises ``BadTask`` or ``PayloadTooLarge``, which name the task and say what to do."""
    for task in new:
        _check_names(task)
        _check_numbers(task)
        _check_payload(rt, task)
        _check_choices(task)
        for named in task.after:
            check_name(f"a task that {task.name}[{task.id}] is to come after", named)


def check_name(what: str, name: Any) -> None:
    """A text of 1 to 255 characters that every store holds and compares alike."""
    fault = fault_of(name)
    if fault is not None:
        raise BadTask(f"{what} {fault}")


def check_event(name: Any) -> None:
    """The same of an event's."""
    fault = fault_of(name)
    if fault is not None:
        raise BadEvent(f"the name of an event {fault}")


def wait_ms(what: str, wait: float | timedelta) -> int:
    """A length of time, which is not negative, in milliseconds."""
    return milliseconds(what, wait.total_seconds() if isinstance(wait, timedelta) else wait, BadStep, least=0)


def sleep_ms(seconds: float, minutes: float, hours: float, days: float) -> int:
    """The sum of these, which is not negative, in milliseconds."""
    parts = ((seconds, 1), (minutes, 60), (hours, 3600), (days, 24 * 3600))
    return wait_ms(SLEEP, sum(milliseconds(SLEEP, number, BadStep) * unit for number, unit in parts) / 1000)


def _check_names(task: NewTask) -> None:
    named = (("the task id", task.id), ("the name", task.name), ("the queue", task.message.queue))
    optional = (
        ("the key (argus_key)", task.key),
        ("the project (argus_project)", task.project),
        ("the parent id", task.parent_id),
        ("the root id", task.root_id),
        ("the group id", task.group_id),
    )
    for what, name in (*named, *(one for one in optional if one[1] is not None)):
        fault = fault_of(name)
        if fault is not None:
            raise BadTask(f"{what} of {task.name}[{task.id}] {fault}")


def _check_numbers(task: NewTask) -> None:
    if not isinstance(task.priority, int) or not -HIGHEST <= task.priority < HIGHEST:
        raise BadTask(f"the priority of {task.name}[{task.id}] must be a whole number, not {task.priority!r}")


def _check_payload(rt: Runtime, task: NewTask) -> None:
    check_size(rt, f"what is passed to {task.name}[{task.id}]", task.message.body)


def _check_choices(task: NewTask) -> None:
    if task.key_conflict not in (None, *KEY_CONFLICTS):
        raise BadTask(
            f"argus_key_conflict of {task.name}[{task.id}] must be one of {KEY_CONFLICTS}, not {task.key_conflict!r}"
        )


def milliseconds(what: str, seconds: float, error: type[Exception] = BadTask, least: float = -LONGEST) -> int:
    """A length of time in milliseconds. Raises the error for what is none."""
    fault = fault_of_seconds(seconds, least)
    if fault is not None:
        raise error(f"{what} {fault}")
    return round(seconds * 1000)


def check_size(rt: Runtime, what: str, data: bytes, error: type[PayloadTooLarge] = PayloadTooLarge) -> None:
    """What the store is to keep of a user's data is at most ``argus_max_payload``."""
    limit = rt.settings.max_payload
    if len(data) > limit:
        raise error(
            f"{what} takes {len(data)} bytes, above argus_max_payload ({limit}): store the data elsewhere and give a"
            " reference to it, or raise the setting"
        )
