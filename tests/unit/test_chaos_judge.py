"""The judge of the chaos runs sees what it is there for: each rule on a made-up ledger that breaks it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.chaos.evidence import Evidence, Row
from tests.chaos.fault import Hit
from tests.chaos.judge import judge
from tests.chaos.recovery import Recoveries, quantile
from tests.chaos.work import Expected
from tests.faults.ledger import Line

WORKER = 7


def line(event: str, tag: str = "a", task: str = "a", token: int = 2, clock: float = 20.0, **more: str) -> Line:
    return Line(event, tag, task, WORKER, token=token, clock=clock, **more)


def run_of(tag: str, token: int = 2) -> list[Line]:
    """What the ledger has of a task that nothing happens to."""
    return [
        line("claimed", "claimed", tag, token),
        line("start", tag, tag, token),
        line("end", tag, tag, token),
        line("success", "effect", tag, 0),
    ]


GOOD = Evidence(
    expected=[(Expected("a", effects=("a",)), 10.0), (Expected("b", delay=5), 10.0)],
    lines=[*run_of("a"), *run_of("b")],
    rows={"a": Row("succeeded", 2, 1), "b": Row("succeeded", 2, 1)},
    effects=[("a", 2)],
)


def kinds(evidence: Evidence) -> set[str]:
    return {violation.kind for violation in judge(evidence)}


def with_lines(*more: Line) -> Evidence:
    return replace(GOOD, lines=[*GOOD.lines, *more])


def with_row(row: Row) -> Evidence:
    return replace(GOOD, rows={**GOOD.rows, "a": row})


def test_a_run_to_which_nothing_happened_is_found_good() -> None:
    assert judge(GOOD) == []


def test_a_run_that_was_repeated_after_a_kill_is_found_good() -> None:
    lost = [line("claimed", "claimed"), line("start")]
    again = [line("claimed", "claimed", token=3), line("start", token=3), line("end", token=3), line("success")]
    lines = [*lost, *again, *run_of("b")]
    rows = {**GOOD.rows, "a": Row("succeeded", 3, 1)}
    assert judge(replace(GOOD, lines=lines, rows=rows, effects=[("a", 3)])) == []


def test_an_accepted_task_that_the_store_does_not_know_is_lost() -> None:
    assert kinds(replace(GOOD, rows={"a": GOOD.rows["a"]})) == {"lost"}


def test_a_task_that_has_not_ended_is_lost() -> None:
    assert kinds(with_row(Row(None, 0, 0))) == {"lost"}


def test_a_task_that_nobody_expected_and_that_has_not_ended_is_lost() -> None:
    assert kinds(replace(GOOD, rows={**GOOD.rows, "tick": Row(None, 0, 0)})) == {"lost"}


def test_a_task_that_is_said_to_have_succeeded_and_was_not_done_is_lost() -> None:
    evidence = replace(GOOD, lines=[one for one in GOOD.lines if one.event != "end"])
    assert kinds(evidence) == {"lost"}


def test_one_piece_of_work_that_ran_as_two_tasks_is_doubled() -> None:
    assert "doubled" in kinds(with_lines(line("run", "a", "another")))


@pytest.mark.parametrize("event", ["success", "failure"])
def test_a_task_that_ended_twice_is_doubled(event: str) -> None:
    assert kinds(with_lines(line(event))) == {"doubled"}


def test_a_dead_letter_is_told_as_a_failure_too() -> None:
    lines = [line("claimed", "claimed"), line("start"), line("dead", "dead"), line("failure", "poison")]
    dead = Evidence([(Expected("a", "dead"), 10.0)], lines, {"a": Row("dead", 2, 0)})
    assert judge(dead) == []
    assert kinds(replace(dead, lines=[*lines, line("dead", "dead")])) == {"doubled"}


def test_a_task_that_two_runs_ended_is_doubled() -> None:
    assert kinds(with_row(Row("succeeded", 2, 2))) == {"doubled"}


def test_a_run_under_an_older_token_is_seen() -> None:
    evidence = with_lines(line("start", token=1))
    assert kinds(evidence) == {"fallen"}
    assert kinds(replace(evidence, stopped={WORKER})) == set(), "its process may have been stopped before that line"


@pytest.mark.parametrize("event", ["start", "claimed"])
def test_a_token_that_was_given_twice_is_seen(event: str) -> None:
    assert kinds(with_lines(line(event))) == {"fallen"}


def test_an_end_by_an_older_token_than_was_granted_is_seen() -> None:
    assert kinds(with_lines(line("claimed", token=3))) == {"fallen"}


def test_an_effect_under_an_older_token_is_seen() -> None:
    assert kinds(replace(GOOD, effects=[*GOOD.effects, ("b", 3), ("b", 2)])) == {"fallen"}


def test_an_effect_that_was_written_twice_or_never_is_seen() -> None:
    assert kinds(replace(GOOD, effects=[("a", 2), ("a", 3)])) == {"fenced in vain"}
    assert kinds(replace(GOOD, effects=[])) == {"fenced in vain"}


def test_a_task_that_ran_before_it_was_due_is_seen() -> None:
    assert kinds(replace(GOOD, expected=[GOOD.expected[0], (Expected("b", delay=11), 10.0)])) == {"early"}


def test_a_task_that_ran_before_those_it_comes_after_is_seen() -> None:
    assert kinds(replace(GOOD, expected=[*GOOD.expected, (Expected("b", after=("a",)), 10.0)])) == set()
    assert kinds(
        replace(
            GOOD,
            lines=[*GOOD.lines, line("run", "c", "c", clock=19)],
            rows={**GOOD.rows, "c": Row("succeeded", 2, 1)},
            expected=[*GOOD.expected, (Expected("c", after=("a",)), 10.0)],
        )
    ) == {"early"}


def test_a_revoked_task_that_ran_is_wrong() -> None:
    evidence = replace(GOOD, expected=[(Expected("b", "cancelled"), 10.0)])
    assert kinds(evidence) == {"wrong"}


def test_another_outcome_or_value_is_wrong() -> None:
    assert kinds(with_row(Row("failed", 2, 1))) == {"wrong"}
    assert kinds(replace(GOOD, expected=[*GOOD.expected, (Expected("b", value="3"), 10.0)])) == {"wrong"}


def test_a_worker_that_ended_by_itself_or_takes_no_tasks_is_seen() -> None:
    assert kinds(replace(GOOD, died=["w1 exited 1"])) == {"workers"}
    assert kinds(replace(GOOD, silent=["w2"])) == {"workers"}


def test_recovery_is_the_time_until_the_last_task_that_was_hit_began_again() -> None:
    ended = [line("start", "x", "x", clock=1), line("end", "x", "x", clock=2)]
    hit = [line("start", "a", "a", clock=3), line("start", "b", "b", clock=4)]
    again = [line("start", "b", "b", 3, clock=7), line("start", "a", "a", 3, clock=9)]
    lines = [*ended, *hit, *again]
    assert Recoveries(lines).of(began=5, healed=5, hit=Hit(frozenset({WORKER})), outage=False) == 4
    assert Recoveries(lines).of(began=5, healed=5, hit=Hit(frozenset({WORKER + 1})), outage=False) is None
    assert Recoveries(lines).of(began=5, healed=5, hit=Hit(tasks=frozenset({"b"})), outage=False) == 2
    assert Recoveries(lines).of(began=5, healed=6, hit=Hit(), outage=True) == 1


def test_quantiles() -> None:
    values = [float(number) for number in range(1, 101)]
    assert (quantile(values, 0.5), quantile(values, 0.99), quantile([3.0], 0.99)) == (51.0, 100.0, 3.0)
