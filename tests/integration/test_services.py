"""The test servers themselves: what the other layers and the fault bench rely on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import redis
import sqlalchemy as sa
from kombu import Connection

from tests.services import MariaServer, PostgresServer, RabbitServer, RedisServer, ServiceMissing
from tests.services.server import wait_until

ROOT = Path(__file__).parents[2]


def test_every_store_begins_empty(store_url: str) -> None:
    engine = sa.create_engine(store_url, poolclass=sa.NullPool)
    assert sa.inspect(engine).get_table_names() == []
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE argus_probe (id INTEGER PRIMARY KEY)")
    assert sa.inspect(engine).get_table_names() == ["argus_probe"]


@pytest.mark.redis
def test_a_redis_broker_carries_a_message(redis_broker: str) -> None:
    _carry_a_message(redis_broker)


@pytest.mark.rabbitmq
def test_a_rabbitmq_broker_carries_a_message(rabbitmq_broker: str) -> None:
    _carry_a_message(rabbitmq_broker)


def _carry_a_message(url: str) -> None:
    with Connection(url, connect_timeout=5) as connection, connection.SimpleQueue("probe") as queue:
        queue.put({"n": 1})
        message = queue.get(timeout=5)
        assert message.payload == {"n": 1}
        message.ack()


@pytest.mark.redis
def test_redis_with_aof_keeps_its_keys_over_a_kill_and_without_begins_empty() -> None:
    for aof in (True, False):
        with _or_skip(RedisServer, aof=aof) as server:
            redis.Redis.from_url(server.url).set("k", "v")
            server.kill()
            server.start()
            assert redis.Redis.from_url(server.url).exists("k") == aof


@pytest.mark.postgres
def test_postgres_keeps_what_was_committed_over_a_kill() -> None:
    _keeps_what_was_committed(PostgresServer)


@pytest.mark.mariadb
def test_mariadb_keeps_what_was_committed_over_a_kill() -> None:
    _keeps_what_was_committed(MariaServer)


def _keeps_what_was_committed(server_class: type[PostgresServer] | type[MariaServer]) -> None:
    with _or_skip(server_class) as server:
        engine = sa.create_engine(server.url, poolclass=sa.NullPool)
        with engine.begin() as connection:
            connection.exec_driver_sql("CREATE TABLE kept (id INTEGER PRIMARY KEY)")
            connection.exec_driver_sql("INSERT INTO kept VALUES (7)")
        server.kill()
        assert not server.answers()
        server.start()
        with engine.connect() as connection:
            assert connection.exec_driver_sql("SELECT id FROM kept").scalar() == 7


@pytest.mark.rabbitmq
def test_rabbitmq_leaves_no_process_behind() -> None:
    with _or_skip(RabbitServer) as server:
        family = server._family()
        epmd = server.epmd
        assert epmd is not None
        assert epmd.poll() is None
        server.control("stop_app")
        assert not server.answers()
        server.control("start_app")
        assert server.answers()
    assert epmd.poll() is not None
    assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in family)


@pytest.mark.redis
def test_servers_end_with_a_test_run_that_is_killed() -> None:
    _or_skip(RedisServer).close()
    code = (
        "import os; from tests.services import RedisServer; s = RedisServer().start(); print(s.process.pid, s.folder)"
    )
    run = subprocess.run(
        [sys.executable, "-c", f"{code}; os.sys.stdout.flush(); os.kill(os.getpid(), 9)"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    pid, folder = run.stdout.split()
    assert wait_until(lambda: not psutil.pid_exists(int(pid)) and not Path(folder).exists(), 10)


def _or_skip(server_class, **options):  # type: ignore[no-untyped-def]
    try:
        return server_class(**options)
    except ServiceMissing as missing:
        pytest.skip(str(missing))
