"""The protocol, in every order of its steps, on the plain model; ``test_differential`` shows that the databases do what
that does. ``--deeper`` allows more tokens, which takes minutes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.model.exploring import State, Step, check_goes_on, check_step, explore
from tests.model.plain.plain import Plain


def nothing_more(state: State) -> Iterator[Step]:
    return iter(())


def steering(state: State) -> Iterator[Step]:
    yield "pause", ("p",), {"stop": False}
    yield "pause", ("p",), {"stop": True}
    yield "resume", ("p",), {}
    yield "cancel", ("p",), {}
    yield "revoke", (["a"],), {}


def one_task() -> Plain:
    plain = Plain(any_order=True)
    plain.enqueue("a", "p", "celery")
    return plain


def one_behind_the_other() -> Plain:
    plain = one_task()
    plain.begin()
    plain.enqueue("b", "p", "celery", after=("a",))
    return plain


def two_with_one_slot() -> Plain:
    plain = Plain(any_order=True)
    for task_id in ("a", "b"):
        plain.begin()
        plain.enqueue(task_id, "p", "celery", limits=("narrow",))
    return plain


CASES = {
    "one task": (one_task, nothing_more, 5, 7),
    "one task, steered": (one_task, steering, 3, 4),
    "one behind the other": (one_behind_the_other, nothing_more, 3, 4),
    "two with one slot": (two_with_one_slot, nothing_more, 2, 3),
}
"""What there is, who else takes steps, and up to which token: as a rule, and ``--deeper``."""


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("case", CASES)
def test_in_every_order_of_steps_the_protocol_holds(case: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    begin, more_steps, tokens, more_tokens = CASES[case]
    deeper = request.config.getoption("--deeper", False)
    states = explore(State(begin()), more_steps, more_tokens if deeper else tokens, check_step)
    for state in states:
        check_goes_on(state)
    print(f"{case}: {len(states)} states")
    assert len(states) > 100, "it has explored next to nothing"
