"""A store full of work in every state, made by SQL: a small part row by row, and then that part again and again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.records import HolderFacts
from argus_celery.store import holders
from argus_celery.store.envelope import seal
from argus_celery.store.schema import leases, tasks
from tests.store.bench import Bench, fill, new_task

FAR = 2**50
SEED = 1_000
"""Rows that are made one by one."""
STATES = ("waiting", "scheduled", "queued", "running", "lapsed", "killed", "paused", "cancelled")
SHARES = (6, 4, 2, 2, 1, 1, 2, 2)
"""Of 20 live tasks: due, due one day, in the broker, held, held too long, held by a dead worker, and of the projects
that are paused and cancelled (rows which a sweep has not ended yet)."""
LIVING, LOST, KILLED = (
    HolderFacts(id_, id_, "here", 1, "boot", "1", "1") for id_ in ("worker-living", "worker-lost", "worker-killed")
)


def fill_up(bench: Bench, live: int, finished: int, projects: dict[str, int]) -> dict[str, int]:
    """How many live tasks each holder has. ``projects``: the ids of those named as states, and of the open one."""
    for facts in (LIVING, LOST, KILLED):
        bench.store.transaction(lambda connection, facts=facts: holders.register(bench.store, connection, facts))
    made = min(live, SEED)
    with bench.store.engine.begin() as connection:
        _seed(connection, made, projects)
    fill(bench.store, min(finished, SEED), 0)
    with bench.store.engine.begin() as connection:
        for table, key, first, wanted in (
            (tasks, tasks.c.id, "live-%", live),
            (leases, leases.c.task_id, "live-%", live),
            (tasks, tasks.c.id, "end-%", finished),
        ):
            _multiply(connection, table, key, first, min(wanted, SEED), wanted)
    _analyze(bench)
    with bench.store.engine.connect() as connection:
        return _counted(connection)


def _seed(connection: Connection, count: int, projects: dict[str, int]) -> None:
    rows = [_row(number, state, projects) for number, state in zip(range(count), _states(), strict=False)]
    connection.execute(sa.insert(tasks), [task for task, _ in rows])
    connection.execute(sa.insert(leases), [lease for _, lease in rows])


def _states() -> Iterator[str]:
    while True:
        for state, share in zip(STATES, SHARES, strict=True):
            yield from [state] * share


def _row(number: int, state: str, projects: dict[str, int]) -> tuple[dict[str, Any], dict[str, Any]]:
    envelope, body = seal(new_task(id=f"live-{number}").message)
    place = {"project_id": projects.get(state, projects["open"]), "queue": "celery", "priority": 0}
    task = {**place, "id": f"live-{number}", "name": "t", "message": envelope, "body": body}
    holder = {"queued": "queue", "running": LIVING.id, "lapsed": LOST.id, "killed": KILLED.id}.get(state, "")
    lease = {
        **place,
        "task_id": f"live-{number}",
        "token": 2 if holder else 0,
        "holder": holder,
        "eligible_at": FAR if state in ("scheduled", "queued", "running", "killed") else 1,
        "ttl": 30_000,
        "waits": 0,
        "paused": int(state == "paused"),
        "dispatches": int(state == "queued"),
        "started_at": 1 if holder not in ("", "queue") else None,
        "acquired_at": 1 if holder not in ("", "queue") else None,
    }
    return {**task, "max_losses": 5, "created_at": 1}, lease


def _multiply(connection: Connection, table: sa.Table, key: Any, like: str, there: int, wanted: int) -> None:
    """Insert what is there once more, under other ids, until there are as many as wanted."""
    others = [column for column in table.columns if column.name != key.name]
    doubling = 0
    while there < wanted:
        doubling += 1
        some = min(there, wanted - there)
        again = sa.select(key.concat(f".{doubling}"), *others).where(key.like(like)).limit(some)
        connection.execute(sa.insert(table).from_select([key.name, *(column.name for column in others)], again))
        there += some


def _analyze(bench: Bench) -> None:
    statement = "ANALYZE TABLE argus_leases, argus_tasks" if bench.store.dialect_name == "mysql" else "ANALYZE"
    with bench.store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(statement)


def _counted(connection: Connection) -> dict[str, int]:
    c = leases.c
    found = connection.execute(sa.select(c.holder, sa.func.count()).group_by(c.holder))
    return {holder or "nobody": count for holder, count in found}
