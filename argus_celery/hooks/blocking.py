"""Celery's blocking loop (gevent, eventlet, solo, threads without a hub) looks for a shutdown only between two waits
for messages of two seconds each. Shorter waits let an idle worker end as quickly as one with an event loop does."""

from __future__ import annotations

from typing import Any

from celery import bootsteps

LONGEST_WAIT = 0.5
"""Seconds."""


class ShortWaits(bootsteps.StartStopStep):
    """Consumer step behind each new connection."""

    name = "argus.short_waits"
    requires = ("celery.worker.consumer.connection:Connection",)

    def start(self, consumer: Any) -> None:
        if consumer.hub is None and consumer.connection is not None:
            _shorten(consumer.connection)


def _shorten(connection: Any) -> None:
    drain = connection.drain_events

    def drain_events(**options: Any) -> Any:
        if options.get("timeout") is not None:
            options["timeout"] = min(options["timeout"], LONGEST_WAIT)
        return drain(**options)

    connection.drain_events = drain_events
