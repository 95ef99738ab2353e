"""``Limit``: how many tasks run at once or start in a time, of one task, a key of its arguments, or a scope."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from argus_celery.errors import BadOption, SettingError
from argus_celery.flow.checks import check_name
from argus_celery.flow.naming import in_quotes, row
from argus_celery.hooks.keyed import Key, check_key, value_of
from argus_celery.records import Bound
from argus_celery.store.names import fault_of

LONGEST_SCOPE = 100
HIGHEST = 1_000_000

_RATE = re.compile(r"(\d{1,7})/([smh])\Z", re.ASCII)
_PERIOD = {"s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000}


@dataclass(frozen=True)
class Limit:
    """At most ``concurrency`` tasks are handed out or running at once, and at most ``rate`` start: ``"10/s"``,
    ``"100/m"``, ``"5/h"``.

    It holds over all workers. A rate spaces starts evenly; after a rest ``burst`` of them may come together. With a
    ``key`` (``"args.account_id"``, or a function of the task's arguments) each value has a limit of its own. ``scope``
    is a name that several tasks may share; else a task's limit is its own. Raises ``SettingError``.
    """

    concurrency: int | None = None
    rate: str | None = None
    key: Key | None = None
    scope: str | None = None
    burst: int = 1

    def __post_init__(self) -> None:
        if self.concurrency is None and self.rate is None:
            raise SettingError('Limit() limits nothing: give it concurrency=2, rate="10/s", or both')
        for name in ("concurrency", "burst"):
            value = getattr(self, name)
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not (value is None and name == "concurrency") and not (whole and 1 <= value <= HIGHEST):
                raise SettingError(f"Limit({name}=...) must be a whole number from 1 to {HIGHEST}, not {value!r}")
        if self.rate is not None and not self._spacing():
            raise SettingError(f'Limit(rate=...) must be a text such as "10/s", "100/m" or "5/h", not {self.rate!r}')
        if self.key is not None:
            check_key("Limit(key=...)", self.key)
        if self.scope is not None and not (isinstance(self.scope, str) and 1 <= len(self.scope) <= LONGEST_SCOPE):
            raise SettingError(
                f"Limit(scope=...) must be a text of 1 to {LONGEST_SCOPE} characters, not {self.scope!r}"
            )
        fault = None if self.scope is None else fault_of(self.scope)
        if fault is not None:
            raise SettingError(f"Limit(scope=...) {fault}")

    def bound(self, name: str) -> Bound:
        return Bound(name, self.concurrency, self._spacing(), self.burst)

    def _spacing(self) -> int | None:
        """Microseconds between two starts."""
        found = _RATE.match(self.rate) if isinstance(self.rate, str) else None
        count = int(found[1]) if found else 0
        return max(1, _PERIOD[found[2]] // count) if found and count else None


def limits_of(given: Any) -> tuple[Limit, ...]:
    """One limit or several, as ``durable`` takes them."""
    limits = () if given is None else (given,) if isinstance(given, Limit) else given
    if not isinstance(limits, (list, tuple)) or not all(isinstance(one, Limit) for one in limits):
        raise SettingError(f"durable(limit=...) must be a Limit or a list of them, not {given!r}")
    named = [(one.scope, one.key) for one in limits]
    if len(set(named)) < len(named):
        raise SettingError("durable(limit=...): two limits count the same tasks; put concurrency and rate into one")
    return tuple(limits)


def bounds_of(
    task: Any, name: str, limits: Sequence[Limit], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Bound, ...]:
    """What a call is under. Raises ``BadTask`` for a key that cannot be read, or whose value no store can hold."""
    return tuple(one.bound(_name(task, name, one, args, kwargs)) for one in limits)


def _name(task: Any, name: str, limit: Limit, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    of = f"task {_quoted(name)}" if limit.scope is None else f"scope {_quoted(limit.scope)}"
    if limit.key is None:
        return of
    value = value_of(task.run, name, limit.key, args, kwargs)
    path = limit.key if isinstance(limit.key, str) else limit.key.__qualname__
    named = row(f"{of} {path}={value}" if limit.scope is None else f"{of}={value}")
    check_name(f"the name of a limit of {name}", named)
    return named


def _quoted(given: str) -> str:
    """The first sign of equality that is not in quotes stands before the value of the key."""
    if "=" not in given and not given.startswith('"'):
        return given
    return in_quotes(given)


def of_project(name: str, limit: Any) -> Any:
    """The limit of all tasks of a project; ``BadOption`` for a part of them. What is no ``Limit`` is checked later."""
    if not isinstance(limit, Limit):
        return limit
    if limit.key is not None or limit.scope is not None:
        raise BadOption(
            f"limit of project {name!r} counts all its tasks, and has no key and no scope: give those to the limit of a"
            " task, @durable(limit=...)"
        )
    return limit.bound(f"project {name}")
