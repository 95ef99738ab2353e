"""Names of steps: two that differ in place, kind, name, key or number never make one row, whatever a user writes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from argus_celery.errors import BadStep
from argus_celery.flow import canonical, naming
from argus_celery.store.names import fault_of

Part = tuple[Any, ...]

WORDS = ["a", "1", "sleep", "wait", "wait a", "sleep a", "/", "#2", "(1)", "[1]", '"', "\\", "…", "é", " "]
words = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map("".join)
names = (words | st.text(max_size=9) | st.sampled_from(["a" * 255, "/" * 200])).filter(lambda one: not fault_of(one))
values = words | st.integers() | st.none() | st.booleans() | st.floats(allow_nan=False) | st.text()
keys = values | st.lists(values, max_size=3) | st.dictionaries(words, values, max_size=2) | st.binary(max_size=9)
numbers = st.integers(1, 3)
parts = st.one_of(
    st.tuples(st.just("step"), names, numbers),
    st.tuples(st.just("keyed"), names, keys, numbers),
    st.tuples(st.just("item"), names, numbers, keys, numbers),
)
waits = st.one_of(st.tuples(st.just("sleep"), names, numbers), st.tuples(st.just("wait"), names, numbers))
places = st.builds(lambda outer, last: [*outer, last], st.lists(parts, max_size=3), parts | waits)


def written(part: Part) -> str:
    match part:
        case "step", name, number:
            return naming.numbered(naming.step(name), number)
        case "keyed", name, key, number:
            return naming.numbered(naming.step(name, canonical.label(key)), number)
        case "item", name, number, key, again:
            loop = naming.numbered(naming.step(name), number)
            return naming.numbered(naming.item(loop, canonical.label(key)), again)
        case "sleep", name, number:
            return naming.numbered(naming.sleep(name), number)
        case _, event, number:
            return naming.numbered(naming.wait(event), number)


def row(place: list[Part]) -> str:
    path = ""
    for part in place:
        path = naming.inside(path, written(part))
    return naming.row(path)


def told_apart(place: list[Part]) -> str:
    """1, True and 1.0 are three keys, though Python has them equal; a list and a tuple are one."""
    return repr(place)


@given(places, places)
@example([("keyed", "fetch", 1, 1)], [("item", "fetch", 1, 1, 1)])
@example([("step", "a/b", 1)], [("step", "a", 1), ("step", "b", 1)])
@example([("step", "a#2", 1)], [("step", "a", 2)])
@example([("step", "each[1]", 1)], [("item", "each", 1, 1, 1)])
@example([("keyed", "get", 1, 1)], [("keyed", "get", "1", 1)])
@example([("step", "sleep", 1)], [("sleep", "sleep", 1)])
@example([("step", "wait a", 1)], [("wait", "a", 1)])
@example([("sleep", "wait a", 1)], [("wait", "a", 1)])
@example([("step", "x" * 255, 2)], [("step", naming.row("x" * 255 + "#2"), 1)])
@example([("keyed", "get", "x" * 99, 1)], [("keyed", "get", canonical.label("x" * 99), 1)])
def test_two_steps_share_a_row_only_if_they_are_the_same(one: list[Part], other: list[Part]) -> None:
    assume(told_apart(one) != told_apart(other))
    assert row(one) != row(other)


@given(places)
def test_every_store_holds_and_compares_what_a_step_is_called(place: list[Part]) -> None:
    assert fault_of(row(place)) is None


@pytest.mark.parametrize(
    ("place", "read"),
    [
        ([("step", "fetch", 1)], "fetch"),
        ([("step", "outer", 2), ("step", "fetch the page", 1)], "outer#2/fetch the page"),
        ([("keyed", "get", "https://a/b?c=1", 1)], 'get("https://a/b?c=1")'),
        ([("item", "each", 2, "a", 3), ("keyed", "get", 1, 1)], 'each#2["a"]#3/get(1)'),
        ([("step", "fetch https://a/b", 2)], '"fetch https://a/b"#2'),
        ([("step", 'say "hi" \\', 1)], r'"say \"hi\" \\"'),
        ([("step", "sleepy waiter", 1)], "sleepy waiter"),
        ([("step", "sleep", 1)], '"sleep"'),
        ([("item", "each", 1, [1, ("a", None)], 1)], 'each[[1,["a",null]]]'),
        ([("sleep", "sleep", 2)], "sleep#2"),
        ([("sleep", "before the mail", 1)], "sleep before the mail"),
        ([("wait", "approved order 17", 1)], "wait approved order 17"),
        ([("wait", "a/b", 1)], 'wait "a/b"'),
    ],
)
def test_names_are_read_as_they_were_given(place: list[Part], read: str) -> None:
    assert row(place) == read


def test_a_long_key_is_known_by_its_beginning_and_a_digest() -> None:
    one, other = ("https://example.com/" + "x" * 200 + last for last in "12")
    assert canonical.label(one).startswith('"https://example.com/xxxxxxxxxx')
    assert canonical.label(one) != canonical.label(other)
    assert len(canonical.label(one)) == 64


@pytest.mark.parametrize("call", [naming.step, naming.sleep, naming.wait])
@pytest.mark.parametrize("name", ["", "x" * 256, "nul\0", "blank "])
def test_what_is_no_name_is_refused(call: Any, name: str) -> None:
    with pytest.raises(BadStep, match="the name of a step"):
        call(name)
