"""The due instants of each kind of schedule, and what a beat that sends an entry has to send. No store, no clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from celery import Celery
from celery.schedules import BaseSchedule, crontab, schedstate, schedule

from argus_celery.flow.tick import due_of, entry_name, key_of
from argus_celery.hooks.due import LATE, Firing, Plan, plan
from argus_celery.hooks.instants import Untold, between, following
from argus_celery.store.ticks import Ticked

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
APP = Celery("due", set_as_current=False)
NOON = round(datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp()) * 1000


def every(seconds: float, **more: Any) -> Any:
    return schedule(timedelta(seconds=seconds), app=APP, **more)


def fired(kind: Any, last_run_at: int | None, now: int, ticked: int | None = None, *, store: int | None = None) -> Any:
    """What a beat sends that fires now, on a store whose clock says the same, or ``store``."""
    return plan(Firing(kind, last_run_at, now), Ticked(ticked, now if store is None else store), "one")


def test_a_crontab_is_due_at_its_minutes_however_far_back_it_is_asked() -> None:
    quarters = crontab(minute="*/15", app=APP)
    assert between(quarters, NOON - HOUR, NOON, 3) == [NOON - 30 * MINUTE, NOON - 15 * MINUTE, NOON]
    assert between(quarters, NOON - 30 * 365 * DAY, NOON + 1) == [NOON]
    assert between(quarters, NOON, NOON + 14 * MINUTE) == []
    assert between(crontab(minute=0, hour=0, day_of_month=29, month_of_year=2, app=APP), 0, NOON) == [
        round(datetime(2024, 2, 29, tzinfo=UTC).timestamp()) * 1000
    ]


def test_a_crontab_goes_by_the_zone_of_the_app_through_a_change_of_its_clocks() -> None:
    berlin = Celery("berlin", set_as_current=False)
    berlin.conf.timezone = "Europe/Berlin"
    start = round(datetime(2026, 3, 28, tzinfo=UTC).timestamp()) * 1000
    found = between(crontab(minute=30, hour=4, app=berlin), start, start + 2 * DAY, 9)
    local = [datetime.fromtimestamp(one / 1000, ZoneInfo("Europe/Berlin")) for one in found]
    assert [(one.day, one.hour, one.minute) for one in local] == [(28, 4, 30), (29, 4, 30)]


def test_an_interval_is_due_in_steps_from_its_last_instant() -> None:
    assert between(every(3), 300, 9_299, 9) == [3_300, 6_300]
    assert between(every(3), 300, 10**15) == [10**15 - (10**15 - 300) % 3000]
    assert following(every(3), 300) == 3_300


def test_a_relative_interval_is_rounded_in_the_zone_of_the_app() -> None:
    tokyo = Celery("tokyo", set_as_current=False)
    tokyo.conf.timezone = "Asia/Tokyo"
    daily = schedule(timedelta(days=1), relative=True, app=tokyo)
    assert between(daily, NOON, NOON + DAY, 9) == [NOON + 3 * HOUR]


class Sunlike(BaseSchedule):
    """Each noon, and computed a little differently each time."""

    def remaining_estimate(self, last_run_at: datetime) -> timedelta:
        day = last_run_at.replace(hour=12, minute=0, second=0, microsecond=round(last_run_at.microsecond / 10))
        return (day if day > last_run_at else day + timedelta(days=1)) - self.now()


def test_instants_that_are_computed_anew_each_time_are_one() -> None:
    found = between(Sunlike(app=APP), NOON - DAY - 777, NOON + 1 * SECOND, 9)
    assert [round(one / SECOND) * SECOND for one in found] == [NOON - DAY, NOON]


class OnceAt(BaseSchedule):
    """As django-celery-beat's clocked one."""

    def remaining_estimate(self, last_run_at: datetime) -> timedelta:
        return datetime(2026, 11, 30, 12, tzinfo=UTC) - self.now()


def test_a_schedule_of_one_instant_is_due_once() -> None:
    assert fired(OnceAt(app=APP), NOON - DAY, NOON + 20) == Plan((NOON,), NOON)
    assert fired(OnceAt(app=APP), NOON - DAY, NOON + 20, NOON) == Plan()


class Moody(BaseSchedule):
    """Due whenever it likes, which it cannot say in advance."""

    def remaining_estimate(self, last_run_at: datetime) -> timedelta:
        raise NotImplementedError

    def is_due(self, last_run_at: datetime) -> Any:
        return schedstate(True, 1)


class WithItsOwnClock(Sunlike):
    def now(self) -> datetime:
        return datetime.now(UTC)


@pytest.mark.parametrize("kind", [Moody(app=APP), WithItsOwnClock(app=APP)])
def test_what_does_not_tell_its_instants_is_sent_unless_another_beat_has_sent_it_since(kind: Any) -> None:
    with pytest.raises(Untold):
        between(kind, 0, NOON)
    now = NOON + 10 * SECOND
    assert fired(kind, NOON, now, None) == Plan((now,), now)
    assert fired(kind, NOON, now, NOON + 5) == Plan((now,), now)
    assert fired(kind, NOON, now, NOON + 4 * SECOND) == Plan()


def test_two_beats_of_different_phase_agree_on_the_instants_of_an_interval() -> None:
    """Two beats on one schedule of 3 s, a second and a half apart, each a little late each time."""
    ticked, sent = None, []
    firings = sorted((phase + n * 3_004, phase + (n - 1) * 3_004) for n in range(1, 400) for phase in (300, 1_900))
    for now, last_run_at in firings:
        planned = fired(every(3), last_run_at, now, ticked)
        sent += planned.due
        ticked = ticked if planned.upto is None else planned.upto
    assert sent == sorted(set(sent))
    assert {later - first for first, later in pairwise(sent)} <= {3_000, 6_000}
    assert len(sent) >= 398


def test_a_beat_alone_loses_none_of_its_own_firings() -> None:
    ticked, count, last_run_at, now = None, 0, NOON, NOON
    for late in [0, 1, 0, 2900, 0, 17, 0, 3100, 0, 0] * 20:
        now = last_run_at + 3_000 + late
        planned = fired(every(3), last_run_at, now, ticked)
        assert len(planned.due) == 1
        ticked, last_run_at, count = planned.upto, now, count + 1
    assert count == 200


def test_a_missed_instant_is_skipped_sent_once_or_made_up_for() -> None:
    hourly, down = crontab(minute=0, app=APP), Firing(crontab(minute=0, app=APP), NOON, NOON + 3 * HOUR + 10 * MINUTE)
    ticked = Ticked(NOON, down.now)
    newest = NOON + 3 * HOUR
    assert plan(down, ticked, "skip") == Plan((), newest)
    assert plan(down, ticked, "one") == Plan((newest,), newest)
    assert plan(down, ticked, "all") == Plan((NOON + HOUR, NOON + 2 * HOUR, newest), newest)
    on_time = Firing(hourly, NOON, newest + LATE)
    assert plan(on_time, Ticked(NOON, on_time.now), "skip") == Plan((newest,), newest)


def test_what_is_made_up_for_is_bounded_to_the_newest() -> None:
    down = Firing(crontab(app=APP), NOON - DAY, NOON)
    due = plan(down, Ticked(NOON - DAY, NOON), "all").due
    assert (len(due), due[-1]) == (500, NOON)
    assert plan(down, Ticked(NOON - DAY, NOON), "all").due == tuple(NOON - n * MINUTE for n in reversed(range(500)))


def test_an_interval_is_not_taken_for_missed_because_another_beat_has_another_phase() -> None:
    now = NOON + 4 * HOUR + 40 * MINUTE
    firing = Firing(every(3600), now - HOUR, now)
    assert plan(firing, Ticked(NOON, now), "skip").due == (NOON + 4 * HOUR,)


@pytest.mark.parametrize("ahead", [5 * SECOND, -5 * SECOND, HOUR, -HOUR, DAY])
def test_the_clock_of_the_store_decides(ahead: int) -> None:
    """A beat whose clock is off fires at its own noon; the tick is sent at noon, or at once when that has been."""
    firing = Firing(crontab(minute=0, app=APP), NOON - HOUR, NOON)
    now = NOON - ahead
    last = (now - 1) // HOUR * HOUR - (HOUR if ahead < 0 else 0)
    planned = plan(firing, Ticked(last, now), "one")
    if planned.later is not None:
        now += planned.later
        planned = plan(firing, Ticked(last, now), "one")
    assert planned.due == (now // HOUR * HOUR,)
    assert now - planned.due[0] <= max(0, -ahead) % HOUR


def test_a_row_from_the_future_does_not_silence_an_entry() -> None:
    assert fired(every(3), NOON, NOON + 3_000, NOON + DAY) == Plan((NOON + 3_000,), NOON + 3_000)


def test_an_entry_that_has_never_run_is_sent_now() -> None:
    assert fired(crontab(app=APP), None, NOON + 5) == Plan((NOON + 5,), NOON + 5)
    assert fired(crontab(app=APP), None, NOON + 5, NOON) == Plan()


@pytest.mark.parametrize("name", ["nightly", "ends with a blank ", "n\0", "x" * 250, "\ud800", "ü" * 200])
def test_each_entry_has_a_key_that_every_store_holds_and_the_instant_is_read_from_it(name: str) -> None:
    from argus_celery.store.names import is_possible

    key = key_of(entry_name(name), NOON + 123)
    assert is_possible(key)
    assert due_of(key) == datetime(2026, 11, 30, 12, 0, 0, 123_000, tzinfo=UTC)
    assert entry_name(name) != entry_name(f"{name}2")


@pytest.mark.parametrize("key", [None, "order-18", "beat:", "beat:x@soon"])
def test_another_key_has_no_instant(key: str | None) -> None:
    assert due_of(key) is None
