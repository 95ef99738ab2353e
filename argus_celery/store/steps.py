"""Rows of steps: what a task has done of its work, and need not do again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.records import Claim, StepInfo
from argus_celery.store.dialects import Dialect
from argus_celery.store.engine import Store
from argus_celery.store.leases import is_claimed_by
from argus_celery.store.schema import LongBytes, leases, steps

c = steps.c

AT_ONCE = 200
"""Rows of one statement: SQLite takes no union of more than 500."""
SMALL = 1024
"""Values of up to so many bytes are read with all the names; others when they are asked for."""


def insert(store: Store, connection: Connection, claim: Claim, rows: Mapping[str, bytes | None]) -> bool:
    """Record these steps (name → value) under a claim, in one statement; False, and nothing written, if it is not held.

    The lease row is locked: whoever takes it over waits, and then reads these. Raises ``DuplicateRow`` if one is known.
    """
    named = {f"name_{at}": name for at, name in enumerate(rows)} | {
        f"value_{at}": value for at, value in enumerate(rows.values())
    }
    of = {"of_task": claim.task_id, "of_token": claim.token, "of_holder": claim.holder}
    statement = _insert(store.dialect, store.clock_shift, len(rows))
    return connection.execute(statement, named | of).rowcount > 0


@lru_cache(32)
def _insert(dialect: Dialect, clock_shift: int, rows: int) -> sa.Insert:
    """Made once: making it takes longer than what the database does with it."""
    each = [
        sa.select(
            sa.bindparam(f"name_{at}", type_=sa.String).label("name"),
            sa.cast(sa.bindparam(f"value_{at}", type_=LongBytes), LongBytes).label("value"),
        )
        for at in range(rows)
    ]
    new = (each[0] if rows == 1 else sa.union_all(*each)).subquery("new")
    now = dialect.now() + clock_shift if clock_shift else dialect.now()
    query = sa.select(leases.c.task_id, new.c.name, new.c.value, leases.c.token, now)
    mine = is_claimed_by(sa.bindparam("of_task"), sa.bindparam("of_token"), sa.bindparam("of_holder"))
    locked = dialect.for_update(query.select_from(leases.join(new, sa.true())).where(*mine), of=leases)
    return sa.insert(steps).from_select([*c.keys()], locked).execution_options(preserve_rowcount=True)


def are_mine(connection: Connection, claim: Claim, names: Collection[str]) -> bool:
    """Were these recorded under this very claim? The answer to the commit may have been lost."""
    mine = (c.task_id == claim.task_id, c.name.in_(names), c.token == claim.token)
    return connection.execute(sa.select(sa.func.count()).where(*mine)).scalar_one() == len(set(names))


def names(connection: Connection, task_id: str) -> dict[str, bytes | None]:
    """All steps of a task, each with its value if that is small; else with None."""
    small = sa.case((sa.func.length(c.value) <= SMALL, c.value)).label("value")
    rows = connection.execute(sa.select(c.name, small).where(c.task_id == task_id))
    return {row.name: None if row.value is None else bytes(row.value) for row in rows}


def value(connection: Connection, task_id: str, name: str) -> bytes | None:
    """The value of a step that is known."""
    query = sa.select(c.value).where(c.task_id == task_id, c.name == name)
    found: Any = connection.execute(query).scalar_one()
    return None if found is None else bytes(found)


def finished(connection: Connection, task_id: str, most: int) -> tuple[int, list[StepInfo]]:
    """How many steps a task has finished, and the last of them in the order in which they were."""
    size = sa.func.length(c.value).label("size")
    query = sa.select(c.name, c.token, c.finished_at, size, sa.func.count().over().label("of"))
    last = query.where(c.task_id == task_id).order_by(c.finished_at.desc(), c.name.desc()).limit(most)
    rows = connection.execute(last).all()[::-1]
    return rows[0].of if rows else 0, [StepInfo(row.name, row.token, row.finished_at, row.size) for row in rows]


def forget(connection: Connection, task_ids: Collection[str]) -> None:
    """These tasks do all of their work once more."""
    connection.execute(sa.delete(steps).where(c.task_id.in_(task_ids)))


def put(connection: Connection, claim: Claim, name: str, value: bytes, now: int) -> None:
    """What this step says from now on; the claim's lease is locked."""
    mine = (c.task_id == claim.task_id, c.name == name)
    connection.execute(sa.delete(steps).where(*mine))
    row = {"task_id": claim.task_id, "name": name, "value": value, "token": claim.token, "finished_at": now}
    connection.execute(sa.insert(steps).values(row))
