"""A broker that goes away does not end the worker, nor what it has in hand.

When a connection is lost, kombu makes its transport forget the connection while channels of it are still open. What
these do afterwards (restore messages, ack a late one, reject) fails with an ``AttributeError`` that Celery does not
expect: on Redis the worker exits with an unrecoverable error. Here the transport keeps its connection: the same calls
meet an ordinary connection error while the broker is away, and work when it is back.
"""

from __future__ import annotations

from typing import Any

from celery import bootsteps


class Reconnect(bootsteps.Step):
    """Consumer step that stands before ``on_connection_error_after_connected``."""

    name = "argus.reconnect"

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        reconnect = consumer.on_connection_error_after_connected

        def on_connection_error_after_connected(error: Exception) -> None:
            if consumer.connection is not None:
                _keep_transport_usable(consumer.connection)
            reconnect(error)

        consumer.on_connection_error_after_connected = on_connection_error_after_connected


def _keep_transport_usable(connection: Any) -> None:
    """Its connection lets go of the transport, the transport not of its connection."""

    def let_go() -> None:
        connection._transport = None

    connection._do_close_transport = let_go
