"""``pytest tests/model --deeper``: more of what is explored, which takes minutes."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--deeper", action="store_true", help="explore the protocol up to higher tokens")
