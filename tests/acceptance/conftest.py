"""``pytest tests/acceptance/test_crash_points.py --every-point``: not a few of the points, but all of them."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every-point", action="store_true", help="kill the examples after each of their durable points")


@pytest.fixture
def most(request: pytest.FixtureRequest) -> int | None:
    """At how many points; None is each."""
    return None if request.config.getoption("--every-point", False) else 3
