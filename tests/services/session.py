"""Which server a test run uses for each service, and what happens when there is none."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest

from tests.services.mariadb import MariaServer
from tests.services.postgres import PostgresServer
from tests.services.rabbitmq import RabbitServer
from tests.services.redis import RedisServer
from tests.services.server import Server, ServiceMissing

SERVICES: dict[str, type[Server]] = {
    "redis": RedisServer,
    "postgres": PostgresServer,
    "mariadb": MariaServer,
    "rabbitmq": RabbitServer,
}


@contextlib.contextmanager
def service(name: str) -> Iterator[tuple[str, Server | None]]:
    """The service's URL, from ``ARGUS_TEST_<NAME>_URL`` or of a server started here (then it is given too).

    Without either the test is skipped, or fails if ``ARGUS_TEST_REQUIRE`` names the service.
    """
    given = os.environ.get(f"ARGUS_TEST_{name.upper()}_URL")
    if given:
        yield given, None
        return
    with made_or_skipped(name) as server:
        yield server.url, server


def made_or_skipped(name: str) -> Server:
    try:
        return SERVICES[name]()
    except ServiceMissing as missing:
        if name in required():
            pytest.fail(f"{missing} (ARGUS_TEST_REQUIRE names {name})", pytrace=False)
        pytest.skip(str(missing))


def required() -> set[str]:
    """The services without which the run must fail: ``ARGUS_TEST_REQUIRE=redis,postgres,…``"""
    names = {name.strip() for name in os.environ.get("ARGUS_TEST_REQUIRE", "").split(",") if name.strip()}
    if unknown := names - set(SERVICES):
        raise pytest.UsageError(
            f"ARGUS_TEST_REQUIRE: unknown {', '.join(sorted(unknown))}; known: {', '.join(SERVICES)}"
        )
    return names
