"""How fast tasks end, from what two looks at the store saw."""

from __future__ import annotations

from collections.abc import Mapping

from argus_celery.records import ProjectInfo
from argus_celery.store.board import Board

SHORTEST_MS = 900
"""Looks that are nearer to each other say little."""


class Speed:
    """Ended tasks a second, by project, between the last two looks; none before the second."""

    def __init__(self) -> None:
        self._last: Board | None = None
        self.of: Mapping[str, float] = {}

    def note(self, board: Board) -> None:
        last = self._last
        if last is None:
            self._last = board
        elif board.now - last.now >= SHORTEST_MS:
            self.of = between(last, board)
            self._last = board

    @property
    def known(self) -> bool:
        return bool(self.of)

    @property
    def total(self) -> float:
        return sum(self.of.values())


def between(first: Board, second: Board) -> dict[str, float]:
    """A project that has tasks put back ends fewer than none, which counts as none."""
    seconds = (second.now - first.now) / 1000
    before = {project.name: project.ended for project in first.projects}
    return {
        project.name: max(0.0, (project.ended - before[project.name]) / seconds)
        for project in second.projects
        if project.name in before
    }


def left_ms(project: ProjectInfo, speed: float) -> float | None:
    """How long it takes at this speed; None where nothing is left, or nothing moves."""
    left = project.total - project.ended
    return left / speed * 1000 if left and speed > 0 else None
