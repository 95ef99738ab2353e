"""The README keeps to its length and to what exists, and the table of settings is that of the code."""

from __future__ import annotations

import ast
import importlib
import re
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from argus_celery import cli
from argus_celery.config import Settings

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
SETTINGS = (ROOT / "docs" / "settings.md").read_text()


def python_blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_readme_is_shorter_than_150_lines() -> None:
    assert len(README.splitlines()) < 150


def test_its_first_example_has_twelve_lines_of_code() -> None:
    assert len([line for line in python_blocks(README)[0].splitlines() if line.strip()]) == 12


@pytest.mark.parametrize("at", range(len(python_blocks(README))))
def test_every_example_is_python(at: int) -> None:
    ast.parse(python_blocks(README)[at])


def test_the_names_it_imports_exist() -> None:
    for block in python_blocks(README):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom):
                module = importlib.import_module(str(node.module))
                assert all(hasattr(module, name.name) for name in node.names)


def test_the_methods_it_shows_exist() -> None:
    from argus_celery.context import Current
    from argus_celery.project import Project

    assert all(hasattr(Project, name) for name in re.findall(r"\bproject\.(\w+)\(", README))
    told = README.split("`current` is its claim:")[1].split(".")[0]
    assert all(hasattr(Current, name) for name in re.findall(r"`(\w+)(?:\(\))?`", told))


def test_it_lists_the_commands_there_are() -> None:
    assert re.findall(r"^celery -A shop argus (\w+) .* {3}", README, re.MULTILINE) == list(cli._COMMANDS)


def test_the_files_it_leads_a_reader_to_exist() -> None:
    for name in re.findall(r"`((?:hooks|flow)/\w+)`", README):
        assert (ROOT / "argus_celery" / f"{name}.py").exists(), name


def test_every_setting_and_its_default_is_in_the_table_and_no_other() -> None:
    rows = re.findall(r"^\| `argus_(\w+)` \| (?:`([^`]*)`|(required)) \| \S", SETTINGS, re.MULTILINE)
    told = {name: MISSING if required else ast.literal_eval(default) for name, default, required in rows}
    assert told == {field.name: field.default for field in fields(Settings)}


def test_every_decision_is_linked_from_the_readme() -> None:
    for page in (ROOT / "docs" / "decisions").glob("*.md"):
        assert f"docs/decisions/{page.name}" in README
