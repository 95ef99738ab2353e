"""Limits as they are written down: what they mean, and what is refused before anything is recorded."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery

from argus_celery import Argus, Limit, durable
from argus_celery.errors import BadOption, BadTask, SettingError
from argus_celery.hooks.durable import options_of
from argus_celery.hooks.limits import bounds_of, of_project
from argus_celery.records import Bound


@pytest.fixture
def task() -> Any:
    app = Celery("unit", set_as_current=False)

    @app.task(name="shop.charge", shared=False)
    def charge(account_id: Any, amount: int = 1) -> None: ...

    return charge


def names(task: Any, *limits: Limit, account: Any = 17) -> list[str]:
    return [bound.name for bound in bounds_of(task, task.name, limits, (account,), {})]


def test_a_limit_is_of_its_task_of_a_value_or_of_a_scope_that_tasks_share(task: Any) -> None:
    keyed = Limit(concurrency=2, key="args.account_id")
    assert names(task, Limit(concurrency=10), keyed) == ["task shop.charge", "task shop.charge args.account_id=17"]
    assert names(task, Limit(concurrency=1, scope="db")) == ["scope db"]
    assert names(task, Limit(concurrency=1, scope="db", key="args.0")) == ["scope db=17"]
    assert of_project("import", Limit(concurrency=3)) == Bound("project import", 3)


@pytest.mark.parametrize(("rate", "spacing"), [("10/s", 100_000), ("100/m", 600_000), ("5/h", 720_000_000)])
def test_a_rate_is_a_spacing_of_starts(rate: str, spacing: int) -> None:
    assert Limit(rate=rate, burst=4).bound("x") == Bound("x", None, spacing, 4)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "limits nothing"),
        ({"concurrency": 0}, "from 1 to"),
        ({"concurrency": True}, "whole number"),
        ({"concurrency": 1.5}, "whole number"),
        ({"rate": "10"}, '"10/s", "100/m" or "5/h"'),
        ({"rate": "0/s"}, "must be a text such as"),
        ({"rate": 10}, "must be a text such as"),
        ({"rate": "1/s", "burst": 0}, "burst"),
        ({"concurrency": 1, "key": "account_id"}, r"args\.NAME"),
        ({"concurrency": 1, "scope": "x" * 101}, "1 to 100 characters"),
        ({"concurrency": 1, "scope": "a\0b"}, "no database can hold"),
        ({"concurrency": 1, "scope": "\ud800"}, "no database can hold"),
        ({"concurrency": 1, "scope": "api "}, "must not end with a blank"),
    ],
)
def test_a_limit_that_cannot_work_is_refused_where_it_is_written(options: Any, told: str) -> None:
    with pytest.raises(SettingError, match=told):
        Limit(**options)


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        (3, "a Limit or a list of them"),
        ([Limit(concurrency=1), Limit(rate="1/s")], "count the same tasks"),
        (Limit(concurrency=1, key="args.acount_id"), "Did you mean account_id"),
    ],
)
def test_the_decorator_refuses_what_does_not_fit_the_task(limit: Any, told: str) -> None:
    def charge(account_id: int) -> None: ...

    with pytest.raises(SettingError, match=told):
        durable(charge, limit=limit)


def test_values_that_are_too_long_for_a_name_have_limits_of_their_own(task: Any) -> None:
    limit = Limit(concurrency=1, key="args.account_id")
    (one,), (other,) = (names(task, limit, account="x" * 300 + end) for end in ("a", "b"))
    assert one != other and max(len(one), len(other)) <= 255
    assert names(task, limit, account="x" * 300 + "a") == [one]


def test_a_value_that_no_database_holds_is_refused_at_the_call(task: Any) -> None:
    with pytest.raises(BadTask, match="the name of a limit of shop"):
        names(task, Limit(concurrency=1, key="args.account_id"), account="a\0b")


def test_a_scope_is_not_taken_for_another_with_a_key(task: Any) -> None:
    whole, keyed = Limit(concurrency=1, scope="a=b"), Limit(concurrency=1, scope="a", key="args.account_id")
    further = Limit(concurrency=1, scope="a=b", key="args.account_id")
    assert names(task, whole, account="b") == ['scope "a=b"']
    assert names(task, keyed, account="b") == ["scope a=b"]
    assert names(task, keyed, account="b=c") != names(task, further, account="c")


def test_the_limit_of_a_project_has_no_key() -> None:
    with pytest.raises(BadOption, match="limit of project 'import' counts all its tasks"):
        of_project("import", Limit(concurrency=1, key="args.0"))


def test_the_decorator_keeps_them_wherever_it_stands(task: Any) -> None:
    limits = (Limit(concurrency=2), Limit(rate="10/s", scope="api"))
    assert options_of(Argus.durable(task, limit=limits)).limits == limits
