"""Fixtures for all layers: the servers of this run, and a clean place on them for each test.

``ARGUS_TEST_{REDIS,POSTGRES,MARIADB,RABBITMQ}_URL`` name servers to use; else the run starts its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services import RabbitServer
from tests.services.fresh import fresh_database, fresh_redis, fresh_vhost
from tests.services.session import required, service

STORES = [
    "sqlite",
    pytest.param("postgres", marks=pytest.mark.postgres),
    pytest.param("mariadb", marks=pytest.mark.mariadb),
]


def pytest_configure() -> None:
    required()


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    with service("redis") as (url, _):
        yield url


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with service("postgres") as (url, _):
        yield url


@pytest.fixture(scope="session")
def mariadb_url() -> Iterator[str]:
    with service("mariadb") as (url, _):
        yield url


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[tuple[str, list[str] | None]]:
    """The server's URL and the rabbitmqctl command that reaches it (None: the machine's own)."""
    with service("rabbitmq") as (url, server):
        yield url, server.control_command if isinstance(server, RabbitServer) else None


@pytest.fixture(scope="session")
def rabbitmq_url(rabbitmq: tuple[str, list[str] | None]) -> str:
    return rabbitmq[0]


@pytest.fixture(params=STORES)
def store_url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty database; the test runs on SQLite, PostgreSQL and MariaDB."""
    url: str = request.getfixturevalue(f"{request.param}_store_url")
    return url


@pytest.fixture
def sqlite_store_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture
def postgres_store_url(postgres_url: str) -> Iterator[str]:
    with fresh_database(postgres_url) as url:
        yield url


@pytest.fixture
def mariadb_store_url(mariadb_url: str) -> Iterator[str]:
    with fresh_database(mariadb_url) as url:
        yield url


@pytest.fixture
def redis_broker(redis_url: str) -> Iterator[str]:
    """An empty Redis database, as a broker or a result backend."""
    with fresh_redis(redis_url) as url:
        yield url


@pytest.fixture
def rabbitmq_broker(rabbitmq: tuple[str, list[str] | None]) -> Iterator[str]:
    """A virtual host of its own."""
    url, control = rabbitmq
    with fresh_vhost(url, control) as own:
        yield own
