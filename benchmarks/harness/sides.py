"""Who is measured: for each side its program, its environment, and how to see what it has left to do."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import psycopg
import redis
import sqlalchemy as sa

from benchmarks.harness.place import Place

PLAIN = "celery"
"""The side that the others are compared with."""

_LEFT = {
    "argus": "SELECT count(*) FROM argus_leases",
    "dbos": "SELECT count(*) FROM dbos.workflow_status WHERE status IN ('ENQUEUED', 'PENDING')",
    "procrastinate": "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')",
}


@dataclass(frozen=True)
class Side:
    name: str
    about: str
    kind: str = "argus"
    environment: Mapping[str, str] = field(default_factory=dict)
    peer: bool = False
    """Runs in the peers' Python."""
    same_again: bool = False
    """Whoever takes a killed worker's place bears its name."""

    @property
    def module(self) -> str:
        return {"argus": "celery", "redis": "celery"}.get(self.kind, self.kind) + "_side"

    def python(self, peer: str | None) -> str:
        return str(peer) if self.peer else sys.executable

    def at(self, place: Place, folder: Path) -> Side:
        """With the addresses of this run where the environment says {store}, {psycopg}, {redis} or {folder}."""
        names = {"store": place.store, "redis": place.redis, "folder": str(folder)}
        names["psycopg"] = place.store.replace("postgresql://", "postgresql+psycopg://")
        filled = {name: _filled(value, names) for name, value in self.environment.items()}
        return replace(self, environment={**filled, "BENCH_LEDGER": str(folder / "ledger")})


def _filled(value: str, names: Mapping[str, str]) -> str:
    for name, meaning in names.items():
        value = value.replace(f"{{{name}}}", meaning)
    return value


class Left:
    """How many tasks have not ended, asked over one connection; ``asked`` counts the commits that this costs."""

    def __init__(self, side: Side, place: Place) -> None:
        self.asked = 0
        self._redis = redis.Redis.from_url(place.redis) if side.kind == "redis" else None
        self._query = _LEFT.get(side.kind, "")
        store = side.environment.get("BENCH_STORE", "")
        self._sqlite = sa.create_engine(store).connect() if store.startswith("sqlite") else None
        self._store = None
        if self._redis is None and self._sqlite is None:
            self._store = psycopg.connect(place.store, autocommit=True)

    def __call__(self) -> int:
        if self._redis is not None:
            return int(self._redis.llen("celery")) + int(self._redis.zcard("unacked_index"))  # type: ignore[arg-type]
        if self._sqlite is not None:
            with self._sqlite.begin():
                return int(self._sqlite.exec_driver_sql(self._query).scalar_one())
        assert self._store is not None
        self.asked += 1
        found = self._store.execute(self._query).fetchone()
        return int(found[0]) if found else 0

    def close(self) -> None:
        for connection in (self._redis, self._sqlite, self._store):
            if connection is not None:
                connection.close()


# --- the sides --------------------------------------------------------------------------------------------------------


def _celery(name: str, about: str, **environment: str) -> Side:
    return Side(name, about, "redis", {"BENCH_BROKER": "{redis}", **environment})


def _argus(name: str, about: str, **environment: str) -> Side:
    return Side(name, about, "argus", {"BENCH_BROKER": "{redis}", "BENCH_STORE": "{psycopg}", **environment})


def _peer(name: str, about: str, kind: str, *, same_again: bool = False, **environment: str) -> Side:
    return Side(name, about, kind, {"BENCH_STORE": "{store}", **environment}, peer=True, same_again=same_again)


_EMBEDDED = {"BENCH_BROKER": "argus+{psycopg}"}
_FILE = {"BENCH_BROKER": "argus://{folder}/argus.db", "BENCH_STORE": "sqlite:///{folder}/argus.db"}
_TEN_SECONDS = json.dumps({"broker_transport_options": {"visibility_timeout": 10, "unacked_restore_limit": 1}})

SIDES = [
    _celery(PLAIN, "Redis, prefork, no result"),
    _celery("celery-redis", "the same with results in Redis", BENCH_RESULTS="{redis}"),
    _celery("celery-postgres", "the same with results in PostgreSQL", BENCH_RESULTS="db+{psycopg}"),
    _celery("celery-threads", "no result, pool threads", BENCH_POOL="threads"),
    _argus("argus", "Redis, PostgreSQL, prefork, no result"),
    _argus("argus-results", "the same with results in the store", BENCH_RESULTS="argus://"),
    _argus("argus-threads", "no result, pool threads", BENCH_POOL="threads"),
    _argus("argus-embedded", "PostgreSQL is the broker too, prefork", **_EMBEDDED),
    _argus("argus-sqlite", "one SQLite file is store and broker, prefork", **_FILE),
    _peer("dbos", "its default queue", "dbos"),
    _peer("dbos-tuned", "at most 50 at once, polls every 20 ms", "dbos", BENCH_LIMIT="50", BENCH_POLL="0.02"),
    _peer("procrastinate", "concurrency 2", "procrastinate"),
]

KILLED = [
    _celery(PLAIN, "acks early"),
    _celery("celery-late", "acks late", BENCH_ACKS="late"),
    _celery("celery-late-10s", "acks late, visibility timeout 10 s", BENCH_ACKS="late", BENCH_OPTIONS=_TEN_SECONDS),
    _argus("argus", "Redis, PostgreSQL"),
    _argus("argus-threads", "the same, pool threads", BENCH_POOL="threads"),
    _argus("argus-embedded", "PostgreSQL is the broker too", **_EMBEDDED),
    _argus("argus-sqlite", "one SQLite file is store and broker", **_FILE),
    _peer("dbos", "the same executor id again", "dbos", same_again=True, BENCH_LIMIT="2", BENCH_POLL="0.02"),
    _peer("dbos-new", "a new executor id, no Conductor", "dbos", BENCH_LIMIT="2", BENCH_POLL="0.02"),
    _peer("procrastinate", "its recipe, each minute", "procrastinate", BENCH_CRON="* * * * *"),
    _peer(
        "procrastinate-tuned",
        "the recipe each 5 s, heartbeat 1 s",
        "procrastinate",
        BENCH_CRON="* * * * * */5",
        BENCH_HEARTBEAT="1",
    ),
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--peer", help="a Python that has dbos and procrastinate; without it they are left out")
    parser.add_argument("--sides", nargs="+", metavar="SIDE", help="only these; celery is always among them")


def chosen(sides: list[Side], options: argparse.Namespace) -> list[Side]:
    wanted = None if options.sides is None else {PLAIN, *options.sides}
    return [one for one in sides if (wanted is None or one.name in wanted) and (options.peer or not one.peer)]
