"""What a process was doing when it was killed, and what was there for it to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from argus_celery.flow.runtime import Runtime
from tests.crashes.stage import Stage

Act = Callable[[Stage, Runtime], Any]


@dataclass(frozen=True)
class Scene:
    name: str
    prepare: Callable[[Stage], None]
    act: Act
    repeats: bool = False
    """Who asked for it asks again, as a producer or a person does; else a worker or a sweep died, and nobody does."""


SCENES: list[Scene] = []


def scene(
    prepare: Callable[[Stage], None] = lambda stage: None,
    repeats: bool = False,
) -> Callable[[Act], Act]:
    def add(act: Act) -> Act:
        SCENES.append(Scene(act.__name__, prepare, act, repeats))
        return act

    return add
