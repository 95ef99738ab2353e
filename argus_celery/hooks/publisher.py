"""From rows to broker messages: byte for byte what was recorded, with the token of this dispatch in the header.

A broker that is away costs a caller well under a second: the rows are committed, and the sweep publishes them later.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import Any

from celery import Celery
from kombu.exceptions import OperationalError
from kombu.transport.virtual.base import BrokerState

from argus_celery.hooks.declared import declared
from argus_celery.records import TOKEN_HEADER, Dispatch, Message

logger = logging.getLogger(__name__)

PAUSE_AFTER_FAILURE = 1.0
"""Seconds for which nothing is tried after a failure, so that a batch or a burst does not wait each time."""
DECLARE_EVERY = 1.0
"""Seconds between declarations of what is declared already, on transports that keep bindings beside the messages."""


class Publisher:
    """Publishes through the app's own producer pool."""

    def __init__(self, app: Celery) -> None:
        self.app = app
        self._not_before = 0.0
        self._declared_at = 0.0

    def __call__(self, dispatches: Sequence[Dispatch]) -> Sequence[str]:
        """Publish in order; returns the ids whose message may not have left."""
        if not dispatches or self._resting():
            return [one.task_id for one in dispatches]
        try:
            with self.app.amqp.producer_pool.acquire(block=True) as producer:
                self._declare_anew(producer, dispatches)
                return self.send_through(producer, dispatches)
        except Exception as error:
            return self._failed(error, dispatches)

    def send_through(self, producer: Any, dispatches: Sequence[Dispatch]) -> Sequence[str]:
        """The same through a producer that is in hand."""
        if self._resting():
            return [one.task_id for one in dispatches]
        try:
            self._connect(producer)
            _once_more(producer, lambda: self._publish_all(producer, dispatches))
        except OperationalError as error:
            return self._failed(error, dispatches)
        except Exception as error:
            return self._without_the_faulty(producer, dispatches, error)
        return ()

    def _without_the_faulty(self, producer: Any, dispatches: Sequence[Dispatch], error: Exception) -> Sequence[str]:
        """The broker is there and cannot take one of them, say for its queue's options: the others leave."""
        producer.connection.close()  # the error may have closed the channel
        producer.revive(producer.connection)
        if len(dispatches) > 1:
            return [task_id for one in dispatches for task_id in self.send_through(producer, [one])]
        (one,) = dispatches
        where = f"queue {one.message.queue!r}"
        logger.error("argus: the broker does not take %s (%s): %s. It is tried again", one.task_id, where, error)
        return [one.task_id]

    def reaches(self, producer: Any) -> bool:
        """Is the broker there? Found out quickly."""
        if self._resting():
            return False
        try:
            self._connect(producer)
        except Exception as error:
            self._failed(error, ())
            return False
        return True

    def send_plain(self, messages: Iterable[Message]) -> bool:
        """Messages of tasks that are not durable, kept back until a commit; sent as Celery would. False if not all."""
        messages = list(messages)
        if not messages:
            return True
        retry = {"retry": True, "retry_policy": dict(self.app.conf.task_publish_retry_policy)}
        try:
            with self.app.amqp.producer_pool.acquire(block=True) as producer:
                for message in messages:
                    self._publish(producer, message, dict(message.headers), declared(self.app, message), **retry)
        except Exception:
            logger.exception("argus: what follows a durable task but is not durable itself could not be published")
            return False
        return True

    def _resting(self) -> bool:
        return time.monotonic() < self._not_before

    def _failed(self, error: Exception, dispatches: Sequence[Dispatch]) -> Sequence[str]:
        self._not_before = time.monotonic() + PAUSE_AFTER_FAILURE
        if dispatches:
            logger.warning(
                "argus: %d message(s) could not be published now (%s); they are recorded and will be",
                len(dispatches),
                error,
            )
        return [one.task_id for one in dispatches]

    def _declare_anew(self, producer: Any, dispatches: Sequence[Dispatch]) -> None:
        """Bindings of an exchange may be gone, say with a flush of Redis: whoever repeats messages makes them again."""
        state = getattr(producer.connection.transport, "state", None)
        due = time.monotonic() - self._declared_at >= DECLARE_EVERY and any(one.message.exchange for one in dispatches)
        if due and isinstance(state, BrokerState):
            self._declared_at = time.monotonic()
            state.clear()
            producer.connection.declared_entities.clear()

    def _connect(self, producer: Any) -> None:
        """One quick attempt at each broker URL: kombu's own ways of connecting wait for seconds."""
        connection = producer.connection
        if connection is not None and not connection.connected:
            tries = len(connection.alt) or 1
            connection.ensure_connection(max_retries=tries - 1, interval_start=0, interval_step=0, timeout=1.0)

    def _publish_all(self, producer: Any, dispatches: Sequence[Dispatch]) -> None:
        with producer.batch() if len(dispatches) > 1 and producer.supports_batch_publish else nullcontext():
            declared_now: set[tuple[str, str]] = set()
            for one in dispatches:
                message, place = one.message, (one.message.queue, one.message.exchange)
                # Finding out that it is declared costs kombu as much as sending a message in a batch.
                known = place in declared_now and not message.declares
                declare = () if known else declared(self.app, message)
                self._publish(producer, message, {**message.headers, TOKEN_HEADER: one.token}, declare)
                declared_now.add(place)

    def _publish(
        self, producer: Any, message: Message, headers: dict[str, Any], declare: Sequence[Any], **how: Any
    ) -> None:
        producer.publish(
            message.body,
            content_type=message.content_type,
            content_encoding=message.content_encoding,
            headers=headers,
            exchange=message.exchange,
            routing_key=message.routing_key,
            declare=declare,
            **{**message.properties, **how},
        )


def _once_more(producer: Any, publish: Any) -> None:
    """A connection that broke while it lay idle is found out by using it: revive and repeat, once for each URL."""
    connection = producer.connection
    tries = len(connection.alt) or 1
    connection.ensure(producer, publish, max_retries=tries, interval_start=0, interval_step=0, interval_max=0)()
