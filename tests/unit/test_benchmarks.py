"""The benchmarks are described, and their figures are what their tables say."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.harness.ledger import Ledger
from benchmarks.harness.report import quantile, ranged, ratios
from benchmarks.harness.sides import KILLED, PLAIN, SIDES
from benchmarks.restore import BEFORE_AND_AFTER

ROOT = Path(__file__).parents[2]


def test_the_page_names_every_benchmark_of_the_menu() -> None:
    named = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/benchmarks.md").read_text(), re.MULTILINE)
    assert sorted(named) == sorted(path.stem for path in (ROOT / "benchmarks").glob("[!_]*.py"))


def test_plain_celery_is_measured_first_as_others_are_compared_with_it() -> None:
    assert SIDES[0].name == KILLED[0].name == BEFORE_AND_AFTER[0] == PLAIN
    assert set(BEFORE_AND_AFTER) <= {one.name for one in KILLED}


def test_a_ratio_is_to_the_base_of_the_same_round() -> None:
    assert ratios([1.0, 6.0], [2.0, 3.0]) == [0.5, 2.0]
    assert ranged([0.5, 2.0, 1.0]) == "1.00 (0.50-2.00)"
    assert ranged([0.5]) == "0.50"
    assert quantile(range(100), 0.99) == 99


def test_a_ledger_tells_who_was_cut_off_and_when_that_ran_again(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    path.write_text("start 1 one 1.0\nstart 2 two 1.5\nend 1 one 2.0\nstart 2 three 4.0\nend 2 three 5.0\n")
    ledger = Ledger(path)
    assert ledger.in_hand("two") == {"2"}
    assert ledger.in_hand("one") == set()
    assert ledger.again("2", after=3.0) == 4.0
    assert ledger.again("1", after=3.0) is None
    assert ledger.ended() == {"1": 1, "2": 1}
