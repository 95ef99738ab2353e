"""``pytest tests/crashes --every-store``: PostgreSQL and MariaDB too. ``--every-kill``: also where the process leaves
nothing else behind than at the next point."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.conftest import STORES
from tests.model.worlds import World
from tests.services.fresh import fresh_database


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every-store", action="store_true", help="not on SQLite only, but on PostgreSQL and MariaDB too")
    parser.addoption("--every-kill", action="store_true", help="not only at points between which something was written")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "world" in metafunc.fixturenames:
        every = metafunc.config.getoption("--every-store", False)
        metafunc.parametrize("world", STORES if every else STORES[:1], indirect=True, scope="module")


@pytest.fixture(scope="module")
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One for all lives: begin it anew."""
    with ExitStack() as stack:
        if request.param == "sqlite":
            url = f"sqlite:///{tmp_path_factory.mktemp('world') / 'store.db'}"
        else:
            url = stack.enter_context(fresh_database(request.getfixturevalue(f"{request.param}_url")))
        world = World(url, window=3)
        stack.callback(world.close)
        yield world
