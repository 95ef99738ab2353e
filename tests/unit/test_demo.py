"""The demo's pure parts: which modules, what is counted in them, who started what, and when something is off."""

from __future__ import annotations

import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest

from examples.stdlib import journal, modules
from examples.stdlib.drain import Tally
from examples.stdlib.journal import Start
from examples.stdlib.modules import Facts, Sum
from examples.stdlib.report import complaints

SOURCE = "import os\nfrom sys import path\n\nclass A:\n    def f(self): ...\n\nasync def g(): ...\n"


def test_the_standard_library_is_found_without_what_was_installed_into_it() -> None:
    found = modules.find()
    assert str(Path(sysconfig.get_path("stdlib")) / "ast.py") in found
    assert not any("site-packages" in path or "dist-packages" in path for path in found)


def test_the_librarys_own_tests_come_only_when_asked_for(tmp_path: Path) -> None:
    for name in ("a.py", "test/test_a.py", "b/tests/c.py", "site-packages/d.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    names = lambda found: [str(Path(path).relative_to(tmp_path)) for path in found]  # noqa: E731
    assert names(modules.find(root=tmp_path)) == ["a.py"]
    assert names(modules.find(root=tmp_path, tests=True)) == ["a.py", "b/tests/c.py", "test/test_a.py"]


def test_lines_definitions_and_imports_are_counted(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(SOURCE)
    assert modules.facts_of(str(tmp_path / "m.py")) == Facts(str(tmp_path / "m.py"), 7, 3, 2)


@pytest.mark.parametrize("source", [b"def (:\n", b"a = '\0'\n"])
def test_source_that_does_not_parse_has_lines_only(tmp_path: Path, source: bytes) -> None:
    (tmp_path / "m.py").write_bytes(source)
    assert modules.facts_of(str(tmp_path / "m.py")) == Facts(str(tmp_path / "m.py"), 1, 0, 0)


def test_a_sum_adds_up_every_column() -> None:
    assert modules.sum_of([Facts("a", 1, 2, 3), Facts("b", 10, 20, 30)]) == Sum(2, 11, 22, 33)


def test_a_start_is_noted_before_anything_can_kill_it(tmp_path: Path) -> None:
    journal.note(tmp_path / "starts", "/a b.py")
    (start,) = journal.read(tmp_path / "starts")
    assert start.path == "/a b.py"


def test_cut_off_is_what_a_worker_started_and_nobody_recorded() -> None:
    starts = [Start(1, 7, "a"), Start(2, 7, "b"), Start(3, 8, "c")]
    assert journal.cut_off(starts, 7, {"a": 1}) == {"b"}


def test_a_restart_is_timed_by_the_last_that_came_back() -> None:
    starts = [Start(1, 7, "a"), Start(1, 7, "b"), Start(5, 8, "a"), Start(6, 8, "b"), Start(9, 8, "b")]
    assert journal.started_again(starts, {"a", "b"}, after=2) == 4
    assert journal.started_again(starts[:3], {"a", "b"}, after=2) is None
    assert journal.ran_twice(starts) == 2


GOOD = Tally(
    enqueued=3,
    done=3,
    ran_twice=1,
    recorded_twice=0,
    cut_off=1,
    again=2.0,
    second_restore=0,
    total=Sum(3, 4, 5, 6),
    seconds=9.0,
)


def test_a_good_run_has_nothing_to_complain_of() -> None:
    assert complaints(GOOD, Sum(3, 4, 5, 6)) == []


@pytest.mark.parametrize(
    "bad",
    [{"done": 2}, {"recorded_twice": 1}, {"cut_off": 0}, {"again": None}, {"second_restore": 1}, {"total": Sum()}],
    ids=lambda bad: next(iter(bad)),
)
def test_whatever_is_off_is_said_in_one_sentence(bad: dict[str, object]) -> None:
    assert len(complaints(replace(GOOD, **bad), Sum(3, 4, 5, 6))) == 1
