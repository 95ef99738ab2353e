"""What a beat that sends an entry has to send: which due instants, or nothing, or later. Pure, but for the schedule."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from argus_celery.flow.tick import MOST
from argus_celery.hooks.instants import Untold, between, following, milliseconds
from argus_celery.store.ticks import Ticked

ALIKE = 1000
"""Milliseconds by which a beat's clock may differ from the store's before the store's is used in its place."""
LATE = 60_000
"""Milliseconds after which a due instant has been missed."""
NEARLY = 0.9
"""Of the time since its own last run, after which a beat whose schedule tells nothing sends anew."""


@dataclass(frozen=True, slots=True)
class Firing:
    """A beat sends an entry: on what schedule, when it did before, and what time it believes it is."""

    schedule: Any
    last_run_at: int | None
    now: int

    @classmethod
    def of(cls, entry: Any) -> Firing:
        schedule = entry.schedule
        last_run_at = entry.last_run_at
        known = isinstance(last_run_at, datetime)
        return cls(schedule, _instant(schedule, last_run_at) if known else None, _instant(schedule, schedule.now()))


def _instant(schedule: Any, time: datetime) -> int:
    return milliseconds(time if time.tzinfo is not None else schedule.maybe_make_aware(time))


@dataclass(frozen=True, slots=True)
class Plan:
    """``due``: a task for each of these instants. ``upto``: the entry has ticked so far. ``later``: in so many ms."""

    due: tuple[int, ...] = ()
    upto: int | None = None
    later: int | None = None


def plan(firing: Firing, ticked: Ticked, catch_up: str) -> Plan:
    """``catch_up``: of what was missed, nothing is sent (``skip``), the newest (``one``), or each (``all``)."""
    ahead = firing.now - ticked.now
    now = firing.now if abs(ahead) <= ALIKE else ticked.now
    # A row from the future was written by a clock that was wrong; the keys still tell tasks apart.
    last = None if ticked.due_at is not None and ticked.due_at > ticked.now + LATE else ticked.due_at
    try:
        _check_consistent(firing)
        return _told(firing, last, now, ahead, catch_up)
    except Untold:
        return _untold(firing, last, now)


def _check_consistent(firing: Firing) -> None:
    """A schedule that is due by ``is_due`` and not by its estimate does not tell its instants."""
    if firing.last_run_at is not None:
        first = following(firing.schedule, firing.last_run_at)
        if first is None or first > firing.now + ALIKE:
            raise Untold


def _told(firing: Firing, last: int | None, now: int, ahead: int, catch_up: str) -> Plan:
    after = firing.last_run_at if last is None else last
    if after is None:
        return Plan((now,), now)
    due = between(firing.schedule, after, now, MOST if catch_up == "all" else 1)
    if not due:
        return _early(firing, after, now, ahead)
    if catch_up == "skip" and _lateness(firing) > LATE:
        return Plan((), due[-1])
    return Plan(tuple(due), due[-1])


def _early(firing: Firing, after: int, now: int, ahead: int) -> Plan:
    """Another beat was first; or this beat's clock is ahead, and the store's decides."""
    if abs(ahead) <= ALIKE:
        return Plan()
    first = following(firing.schedule, after)
    if first is None or first - now > max(ahead, 0) + ALIKE:
        return Plan()
    return Plan(later=first - now)


def _lateness(firing: Firing) -> int:
    """How late this beat is by its own last run: its phase may be another than that of the beat that ticked first."""
    newest = between(firing.schedule, firing.last_run_at, firing.now) if firing.last_run_at is not None else []
    return firing.now - newest[-1] if newest else 0


def _untold(firing: Firing, last: int | None, now: int) -> Plan:
    """The instant is when it is sent, unless another beat has sent it since this one did."""
    own = firing.now - firing.last_run_at if firing.last_run_at is not None else 0
    if last is not None and now - last < NEARLY * own:
        return Plan()
    return Plan((now,), now)
