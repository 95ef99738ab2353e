"""SQLite, PostgreSQL, MariaDB and the plain model are given the same random operations, and after each of them say and
show the same. ``ARGUS_MODEL_LIVES`` asks for more lives, ``ARGUS_MODEL_SEED`` for others, or the one that failed."""

from __future__ import annotations

import copy
import os
import random
from collections import Counter
from typing import Any

import pytest

from argus_celery.flow import window
from tests.model.choosing import OPERATIONS, Life, Operation
from tests.model.plain.plain import Plain
from tests.model.plain.state import Ambiguous
from tests.model.sides import Side, Snapshot, answer, plain_snapshot

STEPS = 150
"""Operations of one life."""


@pytest.fixture
def sides(
    sqlite_store_url: str, postgres_store_url: str, mariadb_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Side]:
    # What a process remembers of the window is good for one operation, however slow the machine is.
    monkeypatch.setattr(window, "FRESH", 3600.0)
    monkeypatch.setattr(window, "FRESH_WHEN_FULL", 3600.0)
    urls = {"SQLite": sqlite_store_url, "PostgreSQL": postgres_store_url, "MariaDB": mariadb_store_url}
    return {name: Side(url) for name, url in urls.items()}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_three_databases_and_the_plain_model_agree_after_every_operation(sides: dict[str, Side]) -> None:
    seed = int(os.environ.get("ARGUS_MODEL_SEED", 0))
    lives = int(os.environ.get("ARGUS_MODEL_LIVES", 0))
    succeeded: Counter[str] = Counter()
    try:
        while lives > 0 or set(succeeded) != set(OPERATIONS):
            succeeded += _live(sides, seed)
            lives, seed = lives - 1, seed + 1
            assert lives > -10, f"in ten lives these never succeeded: {sorted(set(OPERATIONS) - set(succeeded))}"
    finally:
        for side in sides.values():
            side.world.close()
    print(f"{sum(succeeded.values())} operations succeeded: {dict(succeeded.most_common())}")


def _live(sides: dict[str, Side], seed: int) -> Counter[str]:
    """What succeeded in it, and how often."""
    life, plain = Life(random.Random(seed)), Plain()
    for side in sides.values():
        side.world.begin_anew()
    done: list[Operation] = []
    for _ in range(STEPS):
        operation = life.choose(plain)
        tried = copy.deepcopy(plain)
        try:
            expected = _do(tried, operation)
        except Ambiguous:
            continue
        done.append(operation)
        answers = {name: _do(side, operation) for name, side in sides.items()}
        plain = tried
        shown = {name: side.snapshot() for name, side in sides.items()}
        differing = [
            f"{name} says {answers[name]!r}, not {expected!r}; {difference}"
            for name in sides
            if (difference := _difference(shown[name], plain_snapshot(plain))) or answers[name] != expected
        ]
        assert not differing, "\n".join(
            [*map(str, done[-25:]), *differing, f"ARGUS_MODEL_SEED={seed}, operation {len(done)}"]
        )
        life.note(operation, expected)
    return +life.succeeded


def _do(side: Side | Plain, operation: Operation) -> Any:
    side.begin(operation.broker)
    return answer(side, operation.name, operation.args, operation.more)


def _difference(shown: Snapshot, expected: Snapshot) -> str:
    """What is there and not in the model, and the other way round."""
    found = []
    for name, there in shown.items():
        ours = expected[name]
        if there != ours:
            more, less = _less(there, ours), _less(ours, there)
            found.append(f"{name}: it has {more}, the model {less}")
    return "; ".join(found)


def _less(one: Any, other: Any) -> Any:
    if isinstance(one, dict):
        return {key: value for key, value in one.items() if key not in other or other[key] != value}
    return [value for value in one if value not in other]
