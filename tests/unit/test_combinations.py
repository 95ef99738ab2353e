"""The table of combinations in the docs is the one that the tests run."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from tests.integration import combinations

FOLDER = Path(__file__).parents[1] / "integration"


def _tests(name: str) -> dict[str, Any]:
    module = importlib.import_module(f"tests.integration.test_combinations_{name}")
    return {test: made for test, made in vars(module).items() if test.startswith("test_")}


def test_the_page_is_written_from_the_rows() -> None:
    written = "python -m tests.integration.combinations writes it"
    assert combinations.document() == combinations.DOCUMENT.read_text(), written


def test_every_file_of_combinations_is_on_the_page() -> None:
    files = {path.stem.removeprefix("test_combinations_") for path in FOLDER.glob("test_combinations_*.py")}
    assert files == set(combinations.MODULES)


@pytest.mark.parametrize("name", combinations.MODULES)
def test_every_row_has_its_test_and_every_test_a_row(name: str) -> None:
    tests = _tests(name)
    assert set(tests) == set(combinations.ROWS[name])
    assert all(hasattr(test, "row") for test in tests.values())
