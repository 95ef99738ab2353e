"""The settings, read once from ``app.conf.argus_*`` and validated before anything is written."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from argus_celery.errors import SettingError

PREFIX = "argus_"
_ENDLESS = float("inf")
NONE_MEANS_NEVER = ("argus_unknown_deadline",)
"""Elsewhere ``None`` is the default."""
CATCH_UPS = ("skip", "one", "all")
"""What is sent of the ticks of a beat entry that were missed."""
KEY_CONFLICTS = ("first", "error")
"""What another task, or other arguments, under a known key lead to."""
NEVER_DURABLE = ("celery.", "argus.")
"""How the names of Celery's own tasks and of Argus's begin."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings. Durations are seconds. Attribute ``x`` is ``app.conf.argus_x``."""

    store_url: str
    lease_ttl: float = 30.0
    sweep_interval: float = 5.0
    dispatch_ttl: float = 60.0
    dispatch_ttl_max: float = 600.0
    steal_after: float = 5.0
    dispatch_window: int = 1000
    max_losses: int = 5
    max_payload: int = 1024 * 1024
    retention: float = 7 * 24 * 3600.0
    unknown_deadline: float | None = 24 * 3600.0
    """0 or None is never."""
    default_project: str = "default"
    key_conflict: str = "first"
    catch_up: str = "one"
    durable_tasks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for check in (_check_types, _check_choices, _check_deadline, _check_ranges, _check_patterns):
            check(self)

    @property
    def renew_interval(self) -> float:
        """Seconds between renewals: a third of the lease, so that two may fail."""
        return self.lease_ttl / 3

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any]) -> Settings:
        """Build settings from ``{"argus_lease_ttl": 30, …}``; raises ``SettingError`` that names the setting."""
        known = [field.name for field in fields(cls)]
        values = {}
        for name, value in given.items():
            short = name.removeprefix(PREFIX)
            if short not in known:
                raise SettingError(f"unknown setting {name}.{did_you_mean(short, known, PREFIX)}")
            values[short] = value
        if not values.get("store_url"):
            raise SettingError(
                "argus_store_url is not set: give Argus(app, store=...) or app.conf.argus_store_url"
                " an SQLAlchemy URL, for example sqlite:///argus.db"
            )
        if isinstance(values.get("durable_tasks"), (list, set, frozenset)):
            values["durable_tasks"] = tuple(values["durable_tasks"])
        return cls(**values)


LONGEST = 100 * 366 * 24 * 3600
"""Seconds that every store can count and every calendar can show: a hundred years."""
HIGHEST = 2**31 - 1
"""What every store can count."""


def fault_of_seconds(value: object, least: float = -LONGEST) -> str | None:
    """What keeps it from being a length of time, as the end of a sentence."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value or abs(value) == _ENDLESS:
        return f"must be a finite number of seconds, not {shown(value)}"
    if abs(value) > LONGEST:
        return f"must be at most {LONGEST} seconds, a hundred years, not {shown(value)}"
    return None if value >= least else f"must be at least {least:g} s, not {shown(value)}"


def fault_of_count(value: object, least: int = 1) -> str | None:
    """The same of a whole number."""
    if isinstance(value, bool) or not isinstance(value, int):
        return f"must be a whole number, not {shown(value)}"
    if value < least:
        return f"must be at least {least}, not {shown(value)}"
    return None if value <= HIGHEST else f"must be at most {HIGHEST}, not {shown(value)}"


def shown(value: object) -> str:
    """Of a whole number that is too long for Python to write, too."""
    return (
        f"{value!r:.100}"
        if not isinstance(value, int) or abs(value) < 10**50
        else f"a number of {value.bit_length()} bits"
    )


def counted(count: int, noun: str) -> str:
    """``1 task``, ``2,000 tasks``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def did_you_mean(short: str, known: list[str], prefix: str = "") -> str:
    near = difflib.get_close_matches(short, known, n=1)
    return f" Did you mean {prefix}{near[0]}?" if near else f" Known: {', '.join(prefix + name for name in known)}"


_DURATIONS = ("lease_ttl", "sweep_interval", "dispatch_ttl", "dispatch_ttl_max", "steal_after", "retention")
_COUNTS = ("dispatch_window", "max_losses", "max_payload")


def _check_types(settings: Settings) -> None:
    for name in ("store_url", "default_project"):
        value = getattr(settings, name)
        if not isinstance(value, str) or not value:
            raise SettingError(f"{PREFIX}{name} must be a non-empty text, not {value!r}")


def _check_choices(settings: Settings) -> None:
    for name, choices in (("key_conflict", KEY_CONFLICTS), ("catch_up", CATCH_UPS)):
        if getattr(settings, name) not in choices:
            raise SettingError(f"{PREFIX}{name} must be one of {choices}, not {getattr(settings, name)!r}")


def _check_deadline(settings: Settings) -> None:
    value = settings.unknown_deadline
    fault = None if value is None else fault_of_seconds(value, least=0)
    if fault is not None:
        raise SettingError(f"argus_unknown_deadline {fault}; 0 or None is never")


def _check_ranges(settings: Settings) -> None:
    for name in _DURATIONS:
        fault = fault_of_seconds(getattr(settings, name), least=0.001)
        if fault is not None:
            raise SettingError(f"{PREFIX}{name} {fault}")
    for name in _COUNTS:
        fault = fault_of_count(getattr(settings, name))
        if fault is not None:
            raise SettingError(f"{PREFIX}{name} {fault}")
    if settings.lease_ttl < 1:
        raise SettingError(f"argus_lease_ttl must be at least 1 second, not {settings.lease_ttl!r}")
    if settings.dispatch_ttl_max < settings.dispatch_ttl:
        raise SettingError("argus_dispatch_ttl_max must not be below argus_dispatch_ttl")


def _check_patterns(settings: Settings) -> None:
    patterns = settings.durable_tasks
    if isinstance(patterns, str) or not all(isinstance(p, str) and p for p in patterns):
        raise SettingError(f"argus_durable_tasks must be a list of task name patterns, not {patterns!r}")
    for pattern in patterns:
        if pattern.startswith(NEVER_DURABLE):
            raise SettingError(
                f"argus_durable_tasks: {pattern!r} names only tasks of Celery or of Argus, which are never durable:"
                " they are part of the machinery that makes yours so. Name your own tasks"
            )
