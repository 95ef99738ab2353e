"""Lengths of time and instants that no store or calendar holds: refused by name, before anything is written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from celery import Celery

from argus_celery import durable
from argus_celery.errors import BadStep, SettingError
from argus_celery.flow.checks import sleep_ms, wait_ms
from argus_celery.hooks.clock import local_milliseconds, milliseconds

NAN, INF = float("nan"), float("inf")
NO_TIMES = [NAN, INF, -INF, True, "5", None, 10**400, -(10**400), 10**5000, 1e300]


@pytest.mark.parametrize("given", [*NO_TIMES, -1], ids=lambda given: type(given).__name__)  # not all can be written
def test_what_is_no_wait_is_refused_by_name(given: Any) -> None:
    with pytest.raises(BadStep, match=r"^the timeout of current\.wait_for\(\.\.\.\) must be "):
        wait_ms("the timeout of current.wait_for(...)", given)
    with pytest.raises(BadStep, match=r"^current\.sleep\(\.\.\.\) must be "):
        sleep_ms(given, 0, 0, 0)
    with pytest.raises(BadStep, match=r"^current\.sleep\(\.\.\.\) must be "):
        sleep_ms(0, 0, 0, given)


def test_parts_of_a_wait_are_added_up() -> None:
    assert sleep_ms(1.5, 1, 1, 1) == 90_061_500
    assert sleep_ms(-30, 1, 0, 0) == 30_000
    assert wait_ms("x", timedelta(minutes=1)) == 60_000


@pytest.mark.parametrize("given", [*NO_TIMES[:-5], 10**400, 0, 0.5])
@pytest.mark.parametrize("option", ["lease_ttl", "progress_timeout"])
def test_what_is_no_length_of_time_is_refused_where_the_task_is_declared(option: str, given: Any) -> None:
    with pytest.raises(SettingError, match=rf"^durable\({option}=\.\.\.\) must be "):
        durable(**{option: given})


@pytest.mark.parametrize("given", [0, 1.5, True, "3", NAN, 10**400])
def test_what_is_no_count_of_losses_is_refused_where_the_task_is_declared(given: Any) -> None:
    with pytest.raises(SettingError, match=r"^durable\(max_losses=\.\.\.\) must be "):
        durable(max_losses=given)


@pytest.mark.parametrize(
    "instant",
    [
        datetime.max,
        datetime.max.replace(tzinfo=UTC),
        datetime.max.replace(tzinfo=timezone(-timedelta(hours=12))),
        "9999-12-31T23:59:59.999999-05:00",
        "tomorrow",
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Pacific/Kiritimati"])
def test_an_instant_behind_the_calendars_end_is_refused_by_name(instant: Any, zone: str) -> None:
    app = Celery("unit", set_as_current=False)
    app.conf.timezone = zone
    with pytest.raises(BadStep, match=r"^the eta "):
        milliseconds(instant, app, "the eta", BadStep)
    if isinstance(instant, datetime):
        with pytest.raises(BadStep, match=r"^current\.sleep_until\(\.\.\.\) "):
            local_milliseconds(instant, app, "current.sleep_until(...)", BadStep)


def test_an_instant_without_a_zone_is_the_apps_and_in_a_call_utc_as_celery_has_it() -> None:
    app = Celery("unit", set_as_current=False)
    app.conf.timezone = "America/New_York"
    assert local_milliseconds(datetime(2027, 1, 1), app, "x", BadStep) == 1_798_779_600_000
    assert milliseconds(datetime(2027, 1, 1), app, "x") == 1_798_761_600_000
    for read in (milliseconds, local_milliseconds):
        assert read(datetime(2027, 1, 1, tzinfo=UTC), app, "x", BadStep) == 1_798_761_600_000
        assert read(datetime.min.replace(tzinfo=timezone(timedelta(hours=14))), app, "x", BadStep) == 0
        assert read(datetime(9999, 12, 29), app, "x", BadStep) is not None
