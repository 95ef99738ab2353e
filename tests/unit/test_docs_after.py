"""The page on order: its example is Python over names that exist, and what it names as tests is there."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

from argus_celery.context import Current
from argus_celery.project import Project

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "after.md").read_text()


def test_its_example_calls_what_there_is() -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    calls = [node for node in ast.walk(ast.parse(example)) if isinstance(node, ast.Call)]
    for call in calls:
        if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "project":
            inspect.signature(getattr(Project, call.func.attr)).bind(
                None, *call.args, **{str(given.arg): given.value for given in call.keywords}
            )
    assert {name for name in re.findall(r"current\.(\w+)", PAGE) if not hasattr(Current, name)} == set()


def test_the_tests_it_names_exist() -> None:
    named = re.findall(r"`(tests/\S+\.py)`", PAGE)
    assert named
    assert all((ROOT / name).exists() for name in named)
