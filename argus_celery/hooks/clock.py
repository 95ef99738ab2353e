"""Instants as people and Celery write them, in the milliseconds of the store."""

from __future__ import annotations

from datetime import datetime

from celery import Celery
from celery.utils.time import maybe_iso8601, maybe_make_aware


def milliseconds(instant: str | datetime | None, app: Celery) -> int | None:
    """An ISO text or a datetime as milliseconds since the epoch."""
    if instant is None:
        return None
    return round(maybe_make_aware(maybe_iso8601(instant), app.timezone).timestamp() * 1000)
