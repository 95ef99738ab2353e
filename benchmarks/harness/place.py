"""Where a benchmark runs: a PostgreSQL with fsync on and a Redis, started for it on loopback or given by URL."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg
import redis
from sqlalchemy.engine import make_url

from benchmarks.harness.usage import Counters, counters
from tests.services.postgres import PostgresServer
from tests.services.redis import RedisServer

DATABASE = "argus_bench"


class DurablePostgres(PostgresServer):
    """With its defaults: tests run theirs without fsync."""

    def command(self) -> Sequence[str | Path]:
        place = ["-D", str(self.data), "-p", str(self.port), "-k", "", "-c", "listen_addresses=127.0.0.1"]
        return [self.bin / "postgres", *place, "-c", "max_connections=200"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--postgres", help="a server of this machine, on which databases may be made; else its own")
    parser.add_argument("--redis", help="an empty database of a Redis of this machine, which is flushed; else its own")


@dataclass(frozen=True)
class Place:
    postgres: str
    """Without a driver, on the server's own database."""
    redis: str
    servers: tuple[int, ...]
    """Process ids of both servers."""

    @property
    def store(self) -> str:
        """The database that ``empty`` makes anew."""
        url = make_url(self.postgres).set(database=DATABASE)
        return url.render_as_string(hide_password=False)

    def empty(self) -> None:
        with psycopg.connect(self.postgres, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
            connection.execute(f"CREATE DATABASE {DATABASE}")
            connection.execute("CHECKPOINT")
        client = redis.Redis.from_url(self.redis)
        client.flushdb()
        client.close()

    def counters(self) -> Counters:
        return counters(self.postgres, DATABASE)

    def about(self) -> str:
        with psycopg.connect(self.postgres) as connection:
            names = ("server_version", "fsync", "synchronous_commit", "autovacuum")
            shown = [connection.execute(f"SHOW {name}").fetchone() or ("",) for name in names]
        told = ", ".join(f"{name} {value[0]}" for name, value in zip(names[1:], shown[1:], strict=True))
        client = redis.Redis.from_url(self.redis)
        return f"PostgreSQL {shown[0][0]} ({told}), Redis {client.info('server')['redis_version']}"


@contextmanager
def place(options: argparse.Namespace) -> Iterator[Place]:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started is stopped
    with ExitStack() as running:
        postgres = options.postgres or running.enter_context(DurablePostgres()).url
        broker = options.redis or running.enter_context(RedisServer()).url
        plain = make_url(postgres).set(drivername="postgresql").render_as_string(hide_password=False)
        yield Place(plain, broker, (_postmaster(plain), _redis_pid(broker)))


def _postmaster(url: str) -> int:
    with psycopg.connect(url) as connection:
        return psutil.Process(connection.info.backend_pid).ppid()


def _redis_pid(url: str) -> int:
    client = redis.Redis.from_url(url)
    return int(client.info("server")["process_id"])
