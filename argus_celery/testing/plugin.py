"""The pytest plugin ``argus``: fixtures with which you test your own durable tasks. No server, no container."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from argus_celery.testing.clock import Clock
    from argus_celery.testing.killing import Killing
    from argus_celery.testing.ledger import Ledger
    from argus_celery.testing.stores import TestStore
    from argus_celery.testing.workers import Workers

# Every run of pytest loads this file: what only a fixture needs is imported when one is asked for.


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("argus", "durable tasks")
    group.addoption(
        "--argus-store",
        metavar="URL",
        help="a PostgreSQL, MySQL or MariaDB server (SQLAlchemy URL) on which each test has a database of its own;"
        " default: an SQLite file for each test",
    )


@pytest.fixture
def argus_clock() -> Clock:
    """The clock of the test's store: ``argus_clock.advance(days=2)``."""
    from argus_celery.testing.clock import Clock

    return Clock()


@pytest.fixture
def argus_store_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of an empty database. Override it to choose another."""
    server = request.config.getoption("--argus-store")
    if server is not None:
        from argus_celery.store.fresh import fresh_database

        if server.startswith("sqlite"):
            raise pytest.UsageError(
                f"--argus-store {server}: an SQLite file for each test is what there is without this option; name a"
                " server, for example postgresql+psycopg://localhost/postgres"
            )
        with fresh_database(server) as url:
            yield url
        return
    folder = Path(tempfile.mkdtemp(prefix="argus-test-"))  # short, and not kept: there is one for each test
    yield f"sqlite:///{folder / 'store.db'}"
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def argus_store(argus_store_url: str, argus_clock: Clock) -> Iterator[TestStore]:
    """A fresh store. ``argus_store.use(app)`` gives it to an app until the test is over."""
    from argus_celery.testing.stores import TestStore

    with ExitStack() as stack:
        yield TestStore(argus_store_url, argus_clock, stack)


@pytest.fixture
def argus_worker(argus_store: TestStore) -> Iterator[Workers]:
    """Start a worker in this process, on the fresh store: ``argus_worker(app)``. It ends with the test."""
    from argus_celery.testing.workers import Workers

    with ExitStack() as stack:
        yield Workers(argus_store, stack)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """What bodies have done to the world outside, appended from any process: ``ledger.write("mail", to)``."""
    from argus_celery.testing.ledger import Ledger

    return Ledger(tmp_path / "ledger")


@pytest.fixture
def kill_after(request: pytest.FixtureRequest, argus_store_url: str, ledger: Ledger, tmp_path: Path) -> Killing:
    """Run a task once for each of its durable points, killed there by signal 9: ``kill_after(task, args)``."""
    from argus_celery.testing.killing import Killing

    if "argus_worker" in request.fixturenames:
        raise pytest.UsageError("kill_after starts the workers itself: take argus_worker out of this test")
    return Killing(argus_store_url, ledger, tmp_path)
