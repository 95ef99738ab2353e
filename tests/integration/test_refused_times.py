"""Times of a call that are none: refused by name where the task is called, and nothing is written."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from argus_celery import durable
from argus_celery.errors import BadOption, BadTask
from tests.integration.embedded import Shop, shop


@pytest.fixture
def made(sqlite_store_url: str) -> Shop:
    return shop(sqlite_store_url, f"argus+{sqlite_store_url}")


def nothing() -> None: ...


@pytest.mark.parametrize("given", [float("nan"), float("inf"), 10**400, 1e30, True])
@pytest.mark.parametrize("option", ["countdown", "expires"])
def test_a_call_with_no_length_of_time_is_refused_by_name(made: Shop, option: str, given: Any) -> None:
    body = durable(made.app.task(nothing, name="shop.body", shared=False))
    project = made.argus.project("p")
    for call in (lambda: body.apply_async(**{option: given}), lambda: project.enqueue(body.s().set(**{option: given}))):
        with pytest.raises(BadTask, match=rf"^{option} of shop\.body\[.*\] must be "):
            call()
    assert project.progress().total == 0


@pytest.mark.parametrize("instant", [datetime.max, datetime.max.replace(tzinfo=UTC)])
def test_an_instant_behind_the_calendars_end_is_refused_by_name(made: Shop, instant: datetime) -> None:
    made.app.conf.timezone = "America/New_York"
    body = durable(made.app.task(nothing, name="shop.body", shared=False))
    project = made.argus.project("p")
    for option in ("eta", "expires"):
        with pytest.raises(BadTask, match=rf"{option} of shop\.body\["):
            project.enqueue(body.s().set(**{option: instant}))
    with pytest.raises(BadOption, match=r"^deadline of project 'late' "):
        made.argus.project("late", deadline=instant)
    assert project.progress().total == 0
