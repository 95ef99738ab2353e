"""Instants as people and Celery write them, in the milliseconds of the store."""

from __future__ import annotations

from datetime import UTC, datetime

from celery import Celery
from celery.utils.time import maybe_iso8601, maybe_make_aware

from argus_celery.errors import BadTask

LATEST = int(datetime(9999, 12, 30, tzinfo=UTC).timestamp()) * 1000
"""Behind which some zone's calendar ends."""


def milliseconds(
    instant: str | datetime | None, app: Celery, what: str, error: type[Exception] = BadTask
) -> int | None:
    """An ISO text or a datetime as milliseconds since the epoch; without a zone it is UTC, as everywhere in Celery.

    Raises the error for what no calendar shows.
    """
    if instant is None:
        return None
    try:
        found = round(maybe_make_aware(maybe_iso8601(instant), app.timezone).timestamp() * 1000)
    except (ValueError, OverflowError) as fault:
        raise error(f"{what} is no instant: {instant!r:.100} ({fault})") from fault
    if found >= LATEST:
        raise error(f"{what} must be an instant before 9999-12-30, not {instant!r}")
    return max(found, 0)


def local_milliseconds(instant: datetime, app: Celery, what: str, error: type[Exception]) -> int:
    """The same, but without a zone it is in the app's ``timezone``."""
    found = milliseconds(instant if instant.tzinfo else instant.replace(tzinfo=app.timezone), app, what, error)
    assert found is not None
    return found
