"""docs/guarantees.md says what the fault bench last showed, of every case that it has."""

from __future__ import annotations

from tests.faults import guarantees
from tests.faults.matrix import CASES


def test_the_page_is_that_of_the_last_result() -> None:
    told = guarantees.PAGE.read_text()
    assert told == guarantees.page(), "run: .venv/bin/python -m tests.faults.guarantees"


def test_every_case_is_told_once() -> None:
    told = [name for holds in guarantees.HOLDS.values() for name in holds]
    assert sorted(told) == sorted(case.name for case in CASES)
