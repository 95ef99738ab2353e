"""What a run of Celery's suite is judged by."""

from __future__ import annotations

from tests.compat import judging
from tests.compat.judging import Difference, Ended

PAIR = "redis+argus"


def run(**outcomes: str) -> dict[str, Ended]:
    return {test: Ended(test, outcome) for test, outcome in outcomes.items()}


def test_a_test_that_fails_only_with_argus_is_bad() -> None:
    verdict = judging.judge(PAIR, run(a="failed", b="passed"), run(a="passed", b="passed"), [])
    assert verdict.bad and [one.test for one in verdict.broken] == ["a"]


def test_a_test_that_the_baseline_does_not_pass_is_not_ours() -> None:
    verdict = judging.judge(PAIR, run(a="failed"), run(a="failed"), [])
    assert not verdict.bad and [one.test for one in verdict.foreign] == ["a"]


def test_a_failure_that_no_baseline_was_run_for_is_bad() -> None:
    assert judging.judge(PAIR, run(a="failed"), {}, []).bad


def test_a_failure_in_the_table_is_told_with_its_reason() -> None:
    known = Difference("a", "argus keeps it longer")
    verdict = judging.judge(PAIR, run(a="failed"), run(a="passed"), [known])
    assert not verdict.bad and verdict.known == (known,)


def test_an_entry_of_the_table_that_passes_is_bad() -> None:
    assert judging.judge(PAIR, run(a="passed"), run(a="passed"), [Difference("a", "as ever")]).bad


def test_an_entry_of_the_table_that_fails_sometimes_may_pass() -> None:
    known = Difference("a", "depends on what is caught", sometimes=True)
    assert not judging.judge(PAIR, run(a="passed"), run(a="passed"), [known]).bad
    assert not judging.judge(PAIR, run(a="failed"), run(a="passed"), [known]).bad


def test_an_entry_is_not_asked_for_on_other_pairs_nor_where_its_test_was_not_run() -> None:
    elsewhere = Difference("a", "as ever", pairs=("rabbitmq+redis",))
    assert not judging.judge(PAIR, run(a="passed"), {}, [elsewhere]).bad
    assert not judging.judge(PAIR, run(b="passed"), {}, [Difference("a", "as ever")]).bad


def test_every_difference_has_a_reason_of_its_own() -> None:
    entries = judging.table()
    assert all(len(entry.reason) > 20 and "not built" not in entry.reason for entry in entries)
    assert len({(entry.test, entry.pairs) for entry in entries}) == len(entries)
