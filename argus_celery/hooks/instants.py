"""The due instants of a beat schedule, whatever its kind: asked of the schedule itself, with the time held still."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from celery.schedules import crontab
from celery.schedules import schedule as interval

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_SPAN = 3600 * 1000
NEAR = 500
"""Milliseconds within which two instants of a schedule are one: the sun's are computed, and not alike each time."""
MOST_STEPS = 100_000

Next = Callable[[int], int | None]


class Untold(Exception):
    """The schedule does not say when it is due."""


def between(schedule: Any, after: int, until: int, most: int = 1) -> list[int]:
    """The newest due instants in (after, until], in order. Raises ``Untold``."""
    if type(schedule) is interval and not schedule.relative:
        every = _every(schedule)
        count = max(0, until - after) // every
        return [after + number * every for number in range(max(1, count - most + 1), count + 1)]
    following = _following(schedule)
    if isinstance(schedule, interval):
        return list(deque(_walk(following, max(after, until - (most + 2) * _every(schedule)), until), most))
    span = FIRST_SPAN
    while True:  # from near the end, for there may be years of minutes behind it
        start = max(after, until - span)
        found = list(deque(_walk(following, start, until), most))
        if len(found) == most or start == after:
            return found
        span *= 4


def following(schedule: Any, after: int) -> int | None:
    """The first due instant after this one; None if there is none. Raises ``Untold``."""
    if type(schedule) is interval and not schedule.relative:
        return after + _every(schedule)
    return _following(schedule)(after)


def milliseconds(instant: datetime) -> int:
    return (instant - EPOCH) // timedelta(milliseconds=1)


def _every(schedule: Any) -> int:
    return max(1, schedule.run_every // timedelta(milliseconds=1))


def _walk(following: Next, after: int, until: int) -> Iterator[int]:
    for _ in range(MOST_STEPS):
        found = following(after)
        if found is None or not after < found <= until:
            return
        yield found
        after = found
    raise Untold


def _following(schedule: Any) -> Next:
    # Not copy(): a schedule's own way of being copied leaves things out, and RedBeat's raises.
    still = object.__new__(type(schedule))
    still.__dict__.update(schedule.__dict__)
    near = 0 if isinstance(schedule, (interval, crontab)) else NEAR

    def ask(after: int) -> int | None:
        try:
            # In its own zone: some schedules round to the days of the zone they are asked in.
            instant = (EPOCH + timedelta(milliseconds=after + near)).astimezone(schedule.tz)
            still.nowfun = lambda: instant
            if still.now() != instant:
                raise Untold  # it has a clock of its own
            left = still.remaining_estimate(instant)
        except Untold:
            raise
        except Exception as error:
            raise Untold from error
        if left is None:
            return None
        if not isinstance(left, timedelta):
            raise Untold
        return milliseconds(instant.astimezone(UTC) + left)  # in a zone, Python adds wall time

    return ask
