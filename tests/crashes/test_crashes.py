"""A process may be killed around every commit, message and signal of what it does: the others go on, nothing is lost,
nothing is done twice, and all comes to the same end as where nobody was killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crashes import steering, working
from tests.crashes.dying import Point, that_differ
from tests.crashes.scenes import SCENES, Scene
from tests.crashes.stage import Stage
from tests.model.worlds import World

assert SCENES, f"{steering.__name__} and {working.__name__} tell them"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_a_kill_at_any_point_makes_no_difference(
    scene: Scene, world: World, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    points, undisturbed = _life(scene, Stage(world, tmp_path), None)
    assert points, "it came to no point"
    every = request.config.getoption("--every-kill", False)
    failures: list[str] = []
    for at in range(1, len(points) + 1) if every else that_differ(points):
        where = f"killed at point {at} of {len(points)}, {points[at - 1]}"
        try:
            _, ends = _life(scene, Stage(world, tmp_path), at)
        except AssertionError as error:
            failures.append(f"{where}: {error}")
            continue
        if ends != undisturbed:
            failures.append(f"{where}: {_difference(ends, undisturbed)}")
    assert not failures, "\n".join(["a kill makes a difference:", *failures])


def _life(scene: Scene, stage: Stage, at: int | None) -> tuple[list[Point], dict[str, str]]:
    """The points of the act, and how everything ended."""
    scene.prepare(stage)
    ended = stage.act(lambda rt: scene.act(stage, rt), at)
    assert ended.killed == (at is not None), "the point did not come again"
    if scene.repeats:
        stage.history.check()
        scene.act(stage, stage.rt)
    stage.go_on()
    return ended.value, stage.ends()


def _difference(ends: dict[str, str], undisturbed: dict[str, str]) -> str:
    names = sorted(name for name in ends.keys() | undisturbed.keys() if ends.get(name) != undisturbed.get(name))
    return ", ".join(f"{name} is {ends.get(name)}, undisturbed {undisturbed.get(name)}" for name in names)
