"""Keys over the arguments of a call: what they find, however it was called, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery

from argus_celery import durable
from argus_celery.errors import BadTask, SettingError
from argus_celery.hooks.keyed import unique_of, value_of

ALONE = {"callbacks": None, "chain": None, "chord": None}


@pytest.fixture
def task() -> Any:
    app = Celery("unit", set_as_current=False)

    @app.task(bind=True, name="shop.charge", shared=False)
    def charge(self: Any, account_id: int, amount: int = 1, **more: Any) -> None: ...

    return charge


@pytest.mark.parametrize(
    ("key", "args", "kwargs", "found"),
    [
        ("args.account_id", (17,), {}, "17"),
        ("args.account_id", (), {"account_id": 17}, "17"),
        ("args.0", (), {"account_id": 17}, "17"),
        ("args.amount", (17,), {}, "1"),
        ("kwargs.region", (17,), {"region": "eu"}, "eu"),
        (lambda account_id, **more: account_id % 10, (17,), {}, "7"),
    ],
)
def test_a_key_finds_its_argument_however_it_was_passed(
    task: Any, key: Any, args: Any, kwargs: Any, found: str
) -> None:
    assert value_of(task.run, task.name, key, args, kwargs) == found


@pytest.mark.parametrize(
    ("key", "args", "told"),
    [
        ("args.acount_id", (1,), "shop.charge: .* no argument for 'args.acount_id'. Did you mean account_id"),
        ("args.5", (1,), "no argument"),
        ("args.account_id", ([1, 2],), "a key is a plain value"),
        ("args.account_id", (), "shop.charge cannot be called so"),
    ],
)
def test_a_call_that_a_key_cannot_read_is_refused(task: Any, key: str, args: Any, told: str) -> None:
    with pytest.raises(BadTask, match=told):
        value_of(task.run, task.name, key, args, {})


@pytest.mark.parametrize("key", ["account_id", "args.", "args.a.b", 3, ""])
def test_what_is_no_key_is_refused_where_it_is_written(key: Any) -> None:
    with pytest.raises(SettingError, match=r"durable\(unique=...\) must be"):
        durable(unique=key)


def test_a_key_that_names_no_argument_is_refused_where_it_is_written() -> None:
    def charge(account_id: int) -> None: ...

    with pytest.raises(SettingError, match=r"no such argument\. Did you mean account_id"):
        durable(charge, unique="args.acount_id")


def test_the_kind_of_a_call_is_its_task_and_what_the_key_finds(task: Any) -> None:
    def kind(unique: Any, *args: Any, given: Any = None, name: str = "shop.charge", **kwargs: Any) -> str | None:
        return unique_of(task, name, unique, given, (args, kwargs, ALONE))

    assert kind(True, 17) == kind(True, account_id=17, amount=1) != kind(True, 18)
    assert kind("args.account_id", 17, 5) == kind("args.account_id", 17, 6) != kind("args.account_id", 18)
    assert kind("args.0", 17) != kind("args.0", 17, name="shop.refund")
    assert kind(None, 17) is None is kind(True, 17, given=False)
    assert kind(None, 17, given="17") == kind("args.0", 17)


@pytest.mark.parametrize("given", ["", 5, "x" * 300])
def test_a_mark_that_cannot_be_kept_is_refused(task: Any, given: Any) -> None:
    with pytest.raises(BadTask, match=r"argus_unique of shop\.charge"):
        unique_of(task, task.name, None, given, ((1,), {}, ALONE))


@pytest.mark.parametrize("behind", ["callbacks", "chain", "chord"])
def test_a_unique_task_has_nothing_behind_it(task: Any, behind: str) -> None:
    body = ((1,), {}, {**ALONE, behind: ["something"]})
    with pytest.raises(BadTask, match="argus_unique=False"):
        unique_of(task, task.name, True, None, body)
    assert unique_of(task, task.name, True, False, body) is None
