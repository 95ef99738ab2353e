"""What a run leaves behind: the producer's list, the ledger, and the rows in the store and in the business table."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from argus_celery.records import AttemptOutcome
from argus_celery.store.schema import attempts, tasks
from tests.chaos.producer import SENT, accepted
from tests.chaos.work import Expected
from tests.chaos.world import World
from tests.faults.business import effects
from tests.faults.ledger import Ledger, Line


@dataclass(frozen=True, slots=True)
class Row:
    """A task as the store has it in the end."""

    outcome: str | None
    fence: int
    endings: int
    """Runs of which it says that they ended the task."""


@dataclass(frozen=True)
class Evidence:
    expected: Sequence[tuple[Expected, float]]
    """What has to come of all that was accepted, and when that was first sent."""
    lines: Sequence[Line]
    rows: Mapping[str, Row]
    effects: Sequence[tuple[str, int]] = ()
    """Rows of the business table, tag and token, in the order they were written."""
    stopped: Collection[int] = ()
    """Processes that a fault had stopped for a while."""
    died: Sequence[str] = ()
    """Processes that ended and that no fault had killed."""
    silent: Sequence[str] = ()
    """Workers that took no task in the end."""
    broken: str = ""
    """Which of its own invariants the store breaks."""


def final_rows(world: World) -> dict[str, Row]:
    ending = attempts.c.outcome.in_([AttemptOutcome.SUCCEEDED, AttemptOutcome.FAILED])
    endings = sa.select(attempts.c.task_id, sa.func.count()).where(ending).group_by(attempts.c.task_id)
    with world.store.engine.connect() as connection:
        counted = {row[0]: row[1] for row in connection.execute(endings)}
        found = connection.execute(sa.select(tasks.c.id, tasks.c.outcome, tasks.c.fence)).all()
    return {row.id: Row(row.outcome, row.fence, counted.get(row.id, 0)) for row in found}


def written_effects(world: World) -> list[tuple[str, int]]:
    with world.store.engine.connect() as connection:
        query = sa.select(effects.c.tag, effects.c.token).order_by(effects.c.id)
        return [(row.tag, row.token) for row in connection.execute(query)]


def expected_of(world: World) -> list[tuple[Expected, float]]:
    return accepted(world.options.seed, Ledger(world.folder / SENT).lines())
