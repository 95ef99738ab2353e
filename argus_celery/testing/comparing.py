"""What a life of some work has come to, and what is different in another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from argus_celery.testing.ledger import Effect
from argus_celery.testing.watching import Point


@dataclass(frozen=True, slots=True)
class Trial:
    """One life of the work, from its enqueue to its end."""

    killed_after: Point | None
    tasks: tuple[tuple[str, str, str], ...]
    """Of each task its name, its state, and its result as ``repr`` shows it; sorted."""
    effects: tuple[Effect, ...]
    state: Any = None
    """What ``state`` has returned at the end."""
    result: Any = None
    """Of the task that was given, or its exception."""


@dataclass(frozen=True, slots=True)
class Report:
    points: tuple[Point, ...]
    undisturbed: Trial
    trials: tuple[Trial, ...]

    @property
    def result(self) -> Any:
        return self.undisturbed.result


def differences(one: Trial, other: Trial) -> list[str]:
    found = _differences("the effect", one.effects, other.effects) + _differences("the task", one.tasks, other.tasks)
    if one.state != other.state:
        found.append(f"the state is {other.state!r}, and undisturbed it is {one.state!r}")
    if other.killed_after is None and not found:
        found.append("the work does not go the same way each time: points of threads come in no order")
    return found


def _differences(what: str, one: Sequence[Any], other: Sequence[Any]) -> list[str]:
    counts, others = Counter(map(repr, one)), Counter(map(repr, other))
    return [
        f"{what} {shown} came {others[shown]} times, and undisturbed {counts[shown]} times"
        for shown in sorted(counts | others)
        if counts[shown] != others[shown]
    ]
