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
from argus_celery.hooks.publish import OPTIONS

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


def test_the_commands_it_lists_exist() -> None:
    assert set(re.findall(r"^celery -A shop argus (\w+) .* {3}", README, re.MULTILINE)) <= set(cli._COMMANDS)


def test_the_files_it_leads_a_reader_to_exist() -> None:
    for name in re.findall(r"`((?:hooks|flow)/\w+)`", README):
        assert (ROOT / "argus_celery" / f"{name}.py").exists(), name


def test_every_setting_and_its_default_is_in_the_table_and_no_other() -> None:
    rows = re.findall(r"^\| `argus_(\w+)` \| (?:`([^`]*)`|(required)) \| \S", SETTINGS.split("\n## ")[0], re.MULTILINE)
    told = {name: MISSING if required else ast.literal_eval(default) for name, default, required in rows}
    assert told == {field.name: field.default for field in fields(Settings)}


def test_every_option_of_a_call_is_in_the_table_and_no_other() -> None:
    table = SETTINGS.split("## Options of one call")[1]
    rows = re.findall(r"^\| (`argus_\w+`(?:, `argus_\w+`)*) \|", table, re.MULTILINE)
    assert sorted(re.findall(r"`argus_(\w+)`", "".join(rows))) == OPTIONS


def test_every_decision_is_linked_from_the_readme_or_a_page_of_the_docs() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    for page in (ROOT / "docs" / "decisions").glob("*.md"):
        assert f"docs/decisions/{page.name}" in README or f"(decisions/{page.name})" in pages


@pytest.mark.parametrize(
    "page",
    ["async", "beat", "brokers", "limits", "neighbours", "projects", "steps", "testing", "timeline", "waiting"],
)
def test_every_row_of_a_table_names_a_test_that_exists(page: str) -> None:
    found = re.findall(r"^\| (?!---).* \|$", (ROOT / "docs" / f"{page}.md").read_text(), re.MULTILINE)[1:]
    rows = [row for row in found if not row.endswith("| test |")]  # the heads of further tables
    named = [re.search(r"\| `(test_\w+)` \|$", row) for row in rows]
    assert rows
    assert all(named), [row for row, found in zip(rows, named, strict=True) if not found]
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert not [found[1] for found in named if found and f"def {found[1]}(" not in tests]


def test_every_test_that_a_page_names_exists() -> None:
    defined = {
        name for file in (ROOT / "tests").rglob("*.py") for name in re.findall(r"def (test_\w+)\(", file.read_text())
    }
    pages = [ROOT / "docs" / f"{name}.md" for name in ("effects", "pools", "transactions")]
    named = {name for page in pages for name in re.findall(r"`(test_\w+)`", page.read_text())}
    assert named <= defined, named - defined
