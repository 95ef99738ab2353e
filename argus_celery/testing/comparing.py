"""What a life of some work has come to, and what is different in another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from argus_celery.testing.ledger import Effect
from argus_celery.testing.watching import Point

Ending = tuple[str, str, str]
"""Of a task its name, its state, and its result as ``repr`` shows it."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One life of the work, from its enqueue to its end."""

    killed_after: Point | None
    tasks: tuple[Ending, ...]
    """Sorted."""
    effects: tuple[Effect, ...]
    state: Any = None
    """What ``state`` has returned at the end."""
    result: Any = None
    """Of the task that was given, or its exception."""
    misused: tuple[str, ...] = ()
    """Tasks that have failed by asking Argus for what it cannot do, and with what."""


@dataclass(frozen=True, slots=True)
class Report:
    points: tuple[Point, ...]
    undisturbed: Trial
    trials: tuple[Trial, ...]

    @property
    def result(self) -> Any:
        return self.undisturbed.result


def differences(one: Trial, other: Trial) -> list[str]:
    """What is otherwise in the other: what was seen, and what is expected."""
    found = [*_effects(one.effects, other.effects), *_tasks(one.tasks, other.tasks)]
    if one.state != other.state:
        found.append(f"the state is {other.state!r}, expected {one.state!r}")
    if other.killed_after is None and not found:
        found.append("the work does not go the same way each time: points of threads come in no order")
    return found


def _effects(expected: Sequence[Effect], seen: Sequence[Effect]) -> Iterator[str]:
    counts, others = Counter(map(repr, expected)), Counter(map(repr, seen))
    for effect in sorted(counts | others):
        if counts[effect] != others[effect]:
            happened = f"happened {_times(others[effect])}" if others[effect] else "did not happen"
            yield f"the effect {effect} {happened}, expected {_times(counts[effect])}"


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


def _tasks(expected: Sequence[Ending], seen: Sequence[Ending]) -> Iterator[str]:
    """Those of a name are paired in their order, first those that end in the same state."""
    missing, more = Counter(expected) - Counter(seen), Counter(seen) - Counter(expected)
    for name in sorted({name for name, _, _ in (*missing, *more)}):
        wanted = [ending for ending in sorted(missing.elements()) if ending[0] == name]
        came = [ending for ending in sorted(more.elements()) if ending[0] == name]
        for ending in list(came):
            same = next((one for one in wanted if one[1] == ending[1]), None)
            if same is not None:
                wanted.remove(same)
                came.remove(ending)
                yield f"the result of the task {name} is {ending[2]}, expected {same[2]}"
        for was, instead in zip_longest(wanted, came):
            yield _otherwise(name, was, instead)


def _otherwise(name: str, was: Ending | None, instead: Ending | None) -> str:
    if instead is None:
        assert was is not None
        return f"a task {name} is missing, expected one that ends {was[1]} with {was[2]}"
    if was is None:
        return f"there is a task {name} too many, which ended {instead[1]} with {instead[2]}"
    return f"the task {name} ended {instead[1]} with {instead[2]}, expected {was[1]} with {was[2]}"
