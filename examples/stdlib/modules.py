"""What is read: the modules of the running Python's standard library, and what is counted in each."""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_NOT_STDLIB = {"site-packages", "dist-packages"}
_TESTS = {"test", "tests", "idle_test"}
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class Facts:
    """What one module holds. ``imports`` counts import statements."""

    path: str
    lines: int
    definitions: int
    imports: int


@dataclass(frozen=True, slots=True)
class Sum:
    modules: int = 0
    lines: int = 0
    definitions: int = 0
    imports: int = 0


def find(*, tests: bool = False, root: Path | None = None) -> list[str]:
    """Paths of all modules, sorted; with ``tests``, also the library's own tests."""
    root = root or Path(sysconfig.get_path("stdlib"))
    skipped = _NOT_STDLIB if tests else _NOT_STDLIB | _TESTS
    found = (path for path in root.rglob("*.py") if skipped.isdisjoint(path.relative_to(root).parts))
    return sorted(str(path) for path in found if path.is_file())


def facts_of(path: str) -> Facts:
    """Parse one module. Source that is broken on purpose (some tests are) has lines only."""
    source = Path(path).read_bytes()
    lines = len(source.splitlines())
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError):
        return Facts(path, lines, 0, 0)
    definitions = sum(isinstance(node, _DEFINITIONS) for node in nodes)
    imports = sum(isinstance(node, (ast.Import, ast.ImportFrom)) for node in nodes)
    return Facts(path, lines, definitions, imports)


def sum_of(facts: Iterable[Facts]) -> Sum:
    total = Sum()
    for one in facts:
        total = Sum(
            total.modules + 1,
            total.lines + one.lines,
            total.definitions + one.definitions,
            total.imports + one.imports,
        )
    return total
