"""Configure: what a project is given when it is made, and may be given anew at any time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from argus_celery.config import did_you_mean
from argus_celery.errors import BadOption, BadTask, ProjectNotFound
from argus_celery.flow.checks import milliseconds
from argus_celery.flow.runtime import Runtime
from argus_celery.flow.steer import check_to_come, locked
from argus_celery.records import Bound, OnFailure
from argus_celery.store import projects
from argus_celery.store.projects import Options, Project

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

KNOWN = ["on_failure", "deadline", "priority", "weight", "meta", "limit"]
HIGHEST_PRIORITY = 255
"""What AMQP has room for."""
HIGHEST_WEIGHT = 1_000_000
SLACK_MS = 1000
"""By how much a deadline may seem to differ that is the same: the clock is read twice."""


def checked(rt: Runtime, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options as they are stored; a deadline is seconds from now, or an instant in milliseconds (an ``Instant``).

    Raises ``BadOption`` that names the project, the option and what it may be.
    """
    for option in given:
        if option not in KNOWN:
            raise BadOption(f"project {name!r} has no option {option!r}.{did_you_mean(option, KNOWN)}")
    values: dict[str, Any] = {}
    for option, value in given.items():
        values |= _CHECKS[option](rt, f"{option} of project {name!r}", value)
    return values


class Instant(int):
    """Milliseconds of the database's clock, and no duration."""


def _on_failure(_: Runtime, what: str, value: Any) -> dict[str, Any]:
    try:
        return {"on_failure": OnFailure(OnFailure.CONTINUE if value is None else value)}
    except ValueError:
        known = [str(one) for one in OnFailure]
        raise BadOption(f"{what} cannot be {value!r}.{did_you_mean(str(value), known)}") from None


def _deadline(_: Runtime, what: str, value: Any) -> dict[str, Any]:
    if value is None or isinstance(value, Instant):
        return {"deadline_at": value}
    try:
        in_ms = milliseconds(what, value)
    except BadTask as error:
        raise BadOption(str(error)) from None
    if in_ms <= 0:
        raise BadOption(f"{what} must be above 0 seconds, or a datetime, not {value!r}")
    return {"deadline_in": in_ms}


def _priority(_: Runtime, what: str, value: Any) -> dict[str, Any]:
    return {"priority": _whole(what, 0 if value is None else value, 0, HIGHEST_PRIORITY)}


def _weight(_: Runtime, what: str, value: Any) -> dict[str, Any]:
    return {"weight": _whole(what, 1 if value is None else value, 1, HIGHEST_WEIGHT)}


def _whole(what: str, value: Any, lowest: int, highest: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
        raise BadOption(f"{what} must be a whole number from {lowest} to {highest}, not {value!r}")
    return value


def _meta(rt: Runtime, what: str, value: Any) -> dict[str, Any]:
    if value is not None and (not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value)):
        raise BadOption(f"{what} must be a dict with texts as keys, not {value!r:.100}")
    try:
        size = len(json.dumps(dict(value or {}), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise BadOption(f"{what} must be what JSON holds: {error}") from None
    limit = rt.settings.max_payload
    if size > limit:
        raise BadOption(f"{what} takes {size} bytes, above argus_max_payload ({limit}): keep a reference instead")
    return {"meta": dict(value or {})}


def _limit(_: Runtime, what: str, value: Any) -> dict[str, Any]:
    if value is not None and not isinstance(value, Bound):
        raise BadOption(f"{what} must be a Limit(...), or None, not {value!r}")
    return {"limit": value}


_CHECKS = {
    "on_failure": _on_failure,
    "deadline": _deadline,
    "priority": _priority,
    "weight": _weight,
    "meta": _meta,
    "limit": _limit,
}


def configure(rt: Runtime, name: str, values: Mapping[str, Any]) -> None:
    """Give the project these checked options; the others stay.

    Raises ``ProjectNotFound``, and ``BadOption`` for a deadline that is over.
    """

    def write(connection: Connection, project: Project) -> None:
        check_to_come(rt, connection, name, values)
        if values:
            projects.configure(rt.store, connection, project, values)

    locked(rt, name, write)


def differing(rt: Runtime, name: str, values: Mapping[str, Any]) -> list[str]:
    """Which of these checked options the project does not have."""
    standing = rt.store.statement(lambda connection: projects.options(connection, name))
    if standing is None:
        raise ProjectNotFound(f"project {name!r} is gone (pruned)")
    return sorted({option.split("_")[0] if "deadline" in option else option for option in _differing(standing, values)})


def _differing(standing: Options, values: Mapping[str, Any]) -> list[str]:
    return [option for option, value in values.items() if not _same(standing, option, value)]


def _same(standing: Options, option: str, value: Any) -> bool:
    if option == "deadline_in":
        return standing.deadline_at is not None and abs(standing.deadline_at - standing.created_at - value) < SLACK_MS
    same: bool = getattr(standing, option) == value
    return same
