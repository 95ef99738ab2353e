"""Which server a test run uses for each service, and what happens when there is none."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import NoReturn

import pytest

from tests.services import faketime
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


TOOLS: dict[str, Callable[[], object]] = {"faketime": faketime.library}


def need_tool(name: str) -> None:
    """Without it the test is skipped, or fails if ``ARGUS_TEST_REQUIRE`` names it."""
    try:
        TOOLS[name]()
    except ServiceMissing as missing:
        _missing(name, missing)


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
        _missing(name, missing)


def _missing(name: str, missing: ServiceMissing) -> NoReturn:
    if name in required():
        pytest.fail(f"{missing} (ARGUS_TEST_REQUIRE names {name})", pytrace=False)
    pytest.skip(str(missing))


def required() -> set[str]:
    """The services and tools without which the run must fail: ``ARGUS_TEST_REQUIRE=redis,postgres,…``"""
    names = {name.strip() for name in os.environ.get("ARGUS_TEST_REQUIRE", "").split(",") if name.strip()}
    known = [*SERVICES, *TOOLS]
    if unknown := names - set(known):
        raise pytest.UsageError(f"ARGUS_TEST_REQUIRE: unknown {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    return names
