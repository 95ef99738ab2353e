"""What ``kill_after`` tells of two lives that differ, and what it refuses before it runs anything."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest
from celery import Celery

from argus_celery import Argus
from argus_celery.errors import SettingError
from argus_celery.testing.comparing import Trial, differences
from argus_celery.testing.killing import Killing
from argus_celery.testing.ledger import BadEffect, Ledger
from argus_celery.testing.watching import Point

CHARGE, MAIL = "shop.charge", "shop.mail"


def told(expected: Any, seen: Any, **more: Any) -> list[str]:
    return differences(_trial(expected, None, **more), _trial(seen, Point("step", "charge"), **more))


def _trial(tasks: Any, point: Point | None, effects: Any = ()) -> Trial:
    return Trial(point, tuple(tasks), tuple(effects))


def test_the_same_is_no_difference() -> None:
    assert told([(MAIL, "succeeded", "None")] * 2, [(MAIL, "succeeded", "None")] * 2) == []


def test_a_state_and_a_result_are_told_with_what_was_expected() -> None:
    fine = (CHARGE, "succeeded", "34")
    assert told([fine], [(CHARGE, "succeeded", "35")]) == ["the result of the task shop.charge is 35, expected 34"]
    assert told([fine, fine], [fine, (CHARGE, "dead", "TaskDead()")]) == [
        "the task shop.charge ended dead with TaskDead(), expected succeeded with 34"
    ]


def test_a_task_that_is_missing_or_too_many_is_told() -> None:
    fine, mail = (CHARGE, "succeeded", "34"), (MAIL, "succeeded", "None")
    assert told([fine, mail], [fine]) == ["a task shop.mail is missing, expected one that ends succeeded with None"]
    assert told([fine], [fine, mail]) == ["there is a task shop.mail too many, which ended succeeded with None"]


def test_effects_are_told_by_how_often_they_happened() -> None:
    one, two = _trial((), None, [("mail", "ann")]), _trial((), Point("step", "a"), [("mail", "ann")] * 3)
    assert differences(one, two) == ["the effect ('mail', 'ann') happened 3 times, expected once"]
    assert differences(two, one)[0] == "the effect ('mail', 'ann') happened once, expected 3 times"
    none = _trial((), Point("step", "a"))
    assert differences(one, none) == ["the effect ('mail', 'ann') did not happen, expected once"]


@pytest.fixture
def task() -> Any:
    app = Celery("told", set_as_current=False)
    Argus(app, store="sqlite:///never.db")

    @Argus.durable
    @app.task(shared=False)
    def charge(order: int) -> None:
        pass

    return charge


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"tiemout": 5}, TypeError, r"no option or setting 'tiemout'\. Did you mean timeout\?"),
        ({"max_looses": 1}, TypeError, r"Did you mean max_losses\?"),
        ({"max_losses": 0}, SettingError, "argus_max_losses must be at least 1"),
        ({"store_url": "sqlite:///mine.db"}, TypeError, "is the test's own"),
        ({"idle": True}, TypeError, r"kill_after\(idle=\.\.\.\) is a function"),
        ({"prepare": []}, TypeError, r"kill_after\(prepare=\.\.\.\) is a function"),
        ({"state": "9"}, TypeError, r"kill_after\(state=\.\.\.\) is a function"),
        ({"timeout": None}, ValueError, r"timeout=\.\.\.\) must be a number of seconds above 0"),
        ({"timeout": -1}, ValueError, "above 0"),
        ({"most": 0}, ValueError, "whole number of at least 1"),
        ({"points": ()}, ValueError, "at least one kind"),
        ({"args": "17"}, TypeError, "args is a list"),
        ({"args": 17}, TypeError, "args is a list"),
        ({"kwargs": [17]}, TypeError, "kwargs is a dict"),
        ({"work": lambda: None}, TypeError, "together with app="),
        ({"work": MagicMock()}, TypeError, "kill_after takes a task"),
        ({"app": "shop"}, TypeError, "a Celery app with Argus"),
    ],
)
def test_what_it_cannot_take_is_refused_by_name(task: Any, tmp_path: Any, given: Any, error: Any, message: str) -> None:
    killing = Killing(f"sqlite:///{tmp_path / 'store.db'}", Ledger(tmp_path / "ledger"), tmp_path)
    options = {"work": task, "args": [17], **given}
    with pytest.raises(error, match=message):
        killing(options.pop("work"), options.pop("args"), options.pop("kwargs", None), **options)
    assert not (tmp_path / "store.db").exists()


def test_an_effect_that_json_does_not_hold_is_refused_by_what_it_is(tmp_path: Any) -> None:
    ledger = Ledger(tmp_path / "ledger")
    for effect in (MagicMock(name="order"), object(), {1, 2}):
        with pytest.raises(BadEffect, match=r"ledger\.write\('mail', .*is what JSON holds.*such as an id"):
            ledger.write("mail", effect)
    assert ledger.effects == []
