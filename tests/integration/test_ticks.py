"""Schedulers of beat in this process, on one store: a durable entry that is due is one task for each instant."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery.beat import Scheduler, Service
from celery.schedules import crontab, schedule
from celery.signals import beat_init

from argus_celery import current
from argus_celery.errors import StoreUnavailable
from argus_celery.flow.tick import due_of
from argus_celery.hooks import due
from argus_celery.store import setup
from tests.integration.embedded import Shop, shop

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
NOWHERE = "redis://127.0.0.1:1/0"
HOURLY = {"task": "report", "schedule": crontab(minute=0)}


class Clock:
    """The time that the beats of a test believe it is, and the store too."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now

    def pass_time(self, **time: float) -> None:
        self.now += timedelta(**time)


class Beat:
    """A beat process: an app, and a scheduler that last ran its entries at noon."""

    def __init__(self, store: str, clock: Clock, entries: dict[str, Any], broker: str, settings: Any) -> None:
        self.clock = clock
        self.shop: Shop = shop(store, broker, **settings)
        app = self.shop.app
        app.main = "beats"
        app.conf.task_default_queue = f"queue-{id(self)}"  # memory:// is one broker for every test

        def report(*args: Any) -> None:
            self.shop.log.append(current.due)

        self.shop.argus.durable(app.task(report, name="report", shared=False))
        app.task(print, name="plain", shared=False)
        app.conf.beat_schedule = entries
        setup.init(self.shop.argus.runtime.store)
        service = Service(app, scheduler_cls=Scheduler)
        self.scheduler: Any = service.scheduler
        for name, entry in list(self.scheduler.schedule.items()):
            entry.schedule.nowfun, entry.last_run_at = clock, clock.now
            if name not in entries:
                del self.scheduler.schedule[name]
        beat_init.send(sender=service)

    def tick(self) -> None:
        """Send all that is due now."""
        self.follow_clock()
        self.scheduler._heap = None
        for _ in self.scheduler.schedule:
            self.scheduler.tick()

    def follow_clock(self, ahead_ms: int = 0) -> None:
        """The store's clock is the test's; the beat's may be ahead of it."""
        shift = round((self.clock.now - datetime.now(UTC)).total_seconds() * 1000) - ahead_ms
        self.shop.argus.runtime.store.clock_shift = shift

    def all_keys(self) -> list[str]:
        return sorted(row.key or "" for row in self.shop.rows().values())

    def instants(self) -> list[str]:
        return sorted(f"{instant:%H:%M:%S}" for key in self.all_keys() if (instant := due_of(key)) is not None)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store's clock goes on while the test's stands: on a busy machine by more than the second that is allowed."""
    monkeypatch.setattr(due, "ALIKE", 60_000)


@pytest.fixture
def beat(sqlite_store_url: str, clock: Clock) -> Iterator[Callable[..., Beat]]:
    made: list[Beat] = []

    def make(broker: str = "memory://", settings: Any = None, **entries: Any) -> Beat:
        made.append(Beat(sqlite_store_url, clock, entries, broker, settings or {}))
        return made[-1]

    yield make
    for one in made:
        one.shop.argus.runtime.store.dispose()


def test_two_beats_send_one_task_for_each_instant(beat: Callable[..., Beat], clock: Clock) -> None:
    entries = {"often": {"task": "report", "schedule": schedule(3.0), "args": (1,)}, "hourly": HOURLY}
    one = beat(**entries)
    clock.pass_time(seconds=1.4)
    other = beat(**entries)
    for _ in range(30):
        clock.pass_time(seconds=0.7)
        one.tick()
        other.tick()
    assert one.instants() == [f"12:00:{second:02}" for second in (3, 6, 9, 12, 15, 18, 21)]
    clock.pass_time(hours=1)
    other.tick()
    one.tick()
    assert [key for key in one.all_keys() if "hourly" in key] == ["beat:hourly@2026-11-30T13:00:00.000+00:00"]


def test_a_beat_that_lost_its_file_sends_nothing_twice(beat: Callable[..., Beat], clock: Clock) -> None:
    first = beat(hourly=HOURLY)
    clock.pass_time(hours=1)
    first.tick()
    again = beat(hourly=HOURLY)
    assert again.scheduler.schedule["hourly"].last_run_at == NOON + timedelta(hours=1)
    again.scheduler.schedule["hourly"].last_run_at = NOON
    again.tick()
    assert again.instants() == ["13:00:00"]


def test_a_beat_that_lost_its_file_catches_up_all_the_same(beat: Callable[..., Beat], clock: Clock) -> None:
    """A fresh container: Celery would begin to count anew, and an hourly entry never come to run."""
    first = beat(hourly=HOURLY, often={"task": "report", "schedule": schedule(3600.0)})
    clock.pass_time(hours=1)
    first.tick()
    clock.pass_time(hours=2, minutes=20)
    again = beat(hourly=HOURLY, often={"task": "report", "schedule": schedule(3600.0)})
    assert again.instants() == ["13:00:00"] * 2
    again.tick()
    assert again.instants() == sorted(["13:00:00", "15:00:00"] * 2)


def test_a_scheduler_is_told_that_an_entry_has_run_when_its_task_is_recorded(
    beat: Callable[..., Beat], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RedBeat writes it to Redis at once: killed in between, it would never send that instant."""
    one = beat(hourly=HOURLY)
    clock.pass_time(hours=1)
    one.follow_clock()
    recorded: list[Any] = []
    monkeypatch.setattr(one.scheduler, "reserve", lambda entry: recorded.append(one.instants()))
    one.scheduler.apply_async(one.scheduler.schedule["hourly"], producer=one.scheduler.producer)
    assert recorded == [["13:00:00"]]


@pytest.mark.parametrize(
    ("catch_up", "sent"), [("skip", []), ("one", ["15:00:00"]), ("all", ["13:00:00", "14:00:00", "15:00:00"])]
)
@pytest.mark.parametrize("where", ["options", "headers", "setting"])
def test_what_was_missed_is_caught_up_with_as_the_entry_says(
    beat: Callable[..., Beat], clock: Clock, catch_up: str, sent: list[str], where: str
) -> None:
    rule = {"argus_catch_up": catch_up}
    options = {"options": rule, "headers": {"headers": rule}, "setting": {}}[where]
    settings = {"catch_up": catch_up} if where == "setting" else {}
    one = beat(settings=settings, hourly={**HOURLY, "options": options})
    clock.pass_time(hours=3, minutes=20)
    one.tick()
    assert one.instants() == sent
    clock.pass_time(hours=1, minutes=-20)
    one.tick()
    assert one.instants() == [*sent, "16:00:00"]
    assert "argus_catch_up" not in str([row.message for row in one.shop.rows().values()])


def test_options_of_argus_hold_where_the_scheduler_drops_them(beat: Callable[..., Beat], clock: Clock) -> None:
    """django-celery-beat keeps of an entry's options only those it has a column for."""
    options = {"argus_project": "reports", "argus_catch_up": "all"}
    one = beat(hourly={**HOURLY, "options": options})
    one.scheduler.schedule["hourly"].options = {"headers": {}}
    clock.pass_time(hours=2)
    one.tick()
    assert one.instants() == ["13:00:00", "14:00:00"]
    assert one.shop.argus.project("reports").progress().total == 2


def test_a_key_that_the_entry_names_stays(beat: Callable[..., Beat], clock: Clock) -> None:
    one = beat(hourly={**HOURLY, "options": {"argus_key": "once"}})
    for _ in range(2):
        clock.pass_time(hours=1)
        one.tick()
    assert one.all_keys() == ["once"]


def test_a_wrong_policy_is_told_by_the_name_of_the_entry(
    beat: Callable[..., Beat], clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    one = beat(hourly={**HOURLY, "options": {"argus_catch_up": "two"}})
    clock.pass_time(hours=1)
    one.tick()
    assert "argus_catch_up of the beat entry 'hourly' must be one of" in caplog.text
    assert not one.all_keys()


def test_a_tick_waits_for_a_store_that_is_away(
    beat: Callable[..., Beat], clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = beat(hourly=HOURLY)
    clock.pass_time(hours=1)
    store = one.shop.argus.runtime.store
    with monkeypatch.context() as away, caplog.at_level(logging.WARNING):
        away.setattr(store, "statement", _raise_unavailable)
        one.scheduler._heap = None
        assert one.scheduler.tick() <= 1
    assert "beat's entry hourly is due and is sent when the store is back" in caplog.text
    one.scheduler._held["hourly"] = _due_now(one.scheduler._held["hourly"])
    one.tick()
    assert one.instants() == ["13:00:00"]


def _raise_unavailable(*_: Any) -> Any:
    raise StoreUnavailable("away")


def _due_now(held: Any) -> Any:
    return type(held)(held.entry, held.producer, 0.0)


def test_an_early_clock_has_its_tick_sent_when_the_store_says_so(beat: Callable[..., Beat], clock: Clock) -> None:
    one = beat(hourly=HOURLY)
    clock.pass_time(hours=1)
    one.tick()
    clock.pass_time(hours=1)
    one.follow_clock(ahead_ms=600_000)
    one.scheduler._heap = None
    assert one.scheduler.tick() <= 600
    assert one.instants() == ["13:00:00"]
    one.scheduler._held["hourly"] = _due_now(one.scheduler._held["hourly"])
    one.tick()
    assert one.instants() == ["13:00:00", "14:00:00"]


def test_a_beat_that_starts_while_the_broker_is_away_records_its_ticks(beat: Callable[..., Beat], clock: Clock) -> None:
    one = beat(NOWHERE, hourly=HOURLY, sweep={"task": "argus.sweep", "schedule": schedule(5.0)})
    clock.pass_time(hours=1)
    one.tick()
    assert one.instants() == ["13:00:00"]


def test_what_is_not_durable_is_sent_as_ever(beat: Callable[..., Beat], clock: Clock) -> None:
    one = beat(plain={"task": "plain", "schedule": schedule(3.0)})
    clock.pass_time(seconds=3)
    one.tick()
    assert not one.all_keys()
    with one.shop.app.connection_for_read() as connection, connection.channel() as channel:
        assert channel._size(one.shop.app.conf.task_default_queue) == 1


def test_a_running_task_knows_the_instant_it_was_due_at(beat: Callable[..., Beat], clock: Clock) -> None:
    one = beat(hourly=HOURLY)
    clock.pass_time(hours=1)
    one.tick()
    one.shop.argus.runtime.store.clock_shift = 0
    with one.shop.worker():
        one.shop.app.tasks["report"].delay()
        one.shop.until_logged(NOON + timedelta(hours=1), None)
