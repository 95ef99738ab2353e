"""A channel of ``argus://``: queues, exchanges, prefetch and acks in kombu's terms, rows in the store's."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection
from dataclasses import dataclass, field
from queue import Empty
from typing import Any

from kombu.transport import virtual
from kombu.transport.base import to_rabbitmq_queue_arguments
from kombu.transport.virtual.base import queue_declare_ok_t
from kombu.utils import json  # headers keep the types that they keep on Redis

from argus_celery.errors import StoreUnavailable
from argus_celery.store import mailboxes, messages
from argus_celery.store.messages import Parcel, Taken

logger = logging.getLogger(__name__)

SHORTEST_LIFE = 30_000
"""Milliseconds for which a queue that ends with its reader outlives the last sign of it, at least."""
PLACE = "argus_place"
"""The property that remembers where in the queue a message stood."""


@dataclass
class Mailbox:
    """A queue that ends with its reader, as this channel declared it."""

    lifetime: int
    bound: set[tuple[str, str]] = field(default_factory=set)


class QoS(virtual.QoS):
    """Unacked messages are in this process's memory only."""

    def ack(self, delivery_tag: str) -> None:
        super().ack(delivery_tag)
        self.channel.has_room()

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        super().reject(delivery_tag, requeue)
        self.channel.has_room()

    def restore_unacked(self) -> list[Any]:
        """All in one transaction. What cannot go back now is not kept: the leases bring it again."""
        self._flush()
        unacked = list(self._delivered.values())
        self._delivered.clear()
        try:
            self.channel.put_back(unacked)
        except StoreUnavailable:
            logger.warning("argus: %d unacked message(s) could not go back to the broker", len(unacked))
        return []


class Channel(virtual.Channel):
    QoS = QoS
    supports_fanout = True
    supports_batch_publish = True

    def __init__(self, connection: Any, **options: Any) -> None:
        super().__init__(connection, **options)
        self.store = connection.store
        self._declared: dict[str, Mailbox] = {}
        self._no_ack: set[str] = set()

    # Publishing

    def _put(self, queue: str, message: dict[str, Any], *, batch: Batch | None = None, **_: Any) -> None:
        self._send([self._parcel(queue, message)], batch)

    def _put_fanout(
        self, exchange: str, message: dict[str, Any], routing_key: str, *, batch: Batch | None = None, **_: Any
    ) -> None:
        queues = sorted({queue for _, queue in mailboxes.bound(self.store, exchange)})
        self._send([self._parcel(queue, message) for queue in queues], batch)

    def _send(self, parcels: list[Parcel], batch: Batch | None) -> None:
        if batch is None:
            messages.put(self.store, parcels)
        else:
            batch.add(parcels)

    def _parcel(self, queue: str, message: dict[str, Any]) -> Parcel:
        properties = message["properties"]
        rank = self._get_message_priority(message, reverse=True)
        ttl = properties.get("expiration")
        place = properties.pop(PLACE, None)
        # Before what was sent, or only fetched, within the same millisecond.
        sent_at = None if place is None else place - 2
        return Parcel(queue, rank, json.dumps(message), int(ttl) if ttl else None, sent_at)

    def create_publish_batch(self, max_size: int) -> Batch:
        return Batch(self, max_size)

    # Queues and exchanges

    def prepare_queue_arguments(self, arguments: Any, **options: Any) -> Any:
        return to_rabbitmq_queue_arguments(arguments, **options)

    def queue_declare(self, queue: str | None = None, passive: bool = False, **options: Any) -> Any:
        queue = queue or f"amq.gen-{uuid.uuid4()}"
        if passive:
            return queue_declare_ok_t(queue, self._size(queue), 0)
        arguments = options.get("arguments") or {}
        lifetime = arguments.get("x-expires") or (SHORTEST_LIFE if options.get("auto_delete") else None)
        if lifetime:
            lifetime = max(int(lifetime), SHORTEST_LIFE)
            mailboxes.open_mailbox(self.store, queue, lifetime)
            self._declared[queue] = Mailbox(lifetime)
        return queue_declare_ok_t(queue, 0 if lifetime else self._size(queue), 0)

    def queue_bind(
        self, queue: str, exchange: str | None = None, routing_key: str = "", arguments: Any = None, **_: Any
    ) -> None:
        exchange = exchange or "amq.direct"
        mailboxes.bind(self.store, exchange, routing_key, queue)
        if queue in self._declared:
            self._declared[queue].bound.add((exchange, routing_key))

    def queue_unbind(
        self, queue: str, exchange: str | None = None, routing_key: str = "", arguments: Any = None, **_: Any
    ) -> None:
        mailboxes.unbind(self.store, exchange or "amq.direct", routing_key, queue)

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False, **_: Any) -> None:
        if not (if_empty and self._size(queue)):
            self._forget(queue)
            mailboxes.drop(self.store, queue)

    def exchange_delete(self, exchange: str, if_unused: bool = False, nowait: bool = False) -> None:
        mailboxes.drop_exchange(self.store, exchange)
        self.state.exchanges.pop(exchange, None)

    def get_table(self, exchange: str) -> list[tuple[str, Any, str]]:
        kind = self.typeof(exchange)
        return [kind.prepare_bind(queue, exchange, key, None) for key, queue in mailboxes.bound(self.store, exchange)]

    def list_bindings(self) -> list[tuple[str, str, str]]:
        known = [(exchange, *entry) for exchange in self.state.exchanges for entry in self.get_table(exchange)]
        return [(queue, exchange, key) for exchange, key, _, queue in known]

    def declare_again(self, ended: Collection[str]) -> None:
        """Queues that this channel reads ended while it was cut off from the database: open them anew."""
        for queue in set(ended) & set(self._active_queues) & set(self._declared):
            mailboxes.open_mailbox(self.store, queue, self._declared[queue].lifetime)
            for exchange, routing_key in self._declared[queue].bound:
                mailboxes.bind(self.store, exchange, routing_key, queue)

    def _size(self, queue: str) -> int:
        return messages.count(self.store, queue)

    def _purge(self, queue: str) -> int:
        return messages.purge(self.store, queue)

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        taken = messages.take(self.store, queue, 1)
        if not taken:
            raise Empty()
        return self.opened(taken[0])

    # Consuming

    def basic_consume(self, queue: str, no_ack: bool, *arguments: Any, **options: Any) -> None:
        super().basic_consume(queue, no_ack, *arguments, **options)
        if no_ack:
            self._no_ack.add(queue)
        if queue in self._declared:
            self.connection.mailboxes.add(queue)
        self.connection.call_again()

    def basic_cancel(self, consumer_tag: str) -> None:
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue is not None:
            self.connection.cancelled(queue)
        if queue in self._declared and queue not in self._active_queues:
            try:
                self.queue_delete(queue)
            except StoreUnavailable:
                logger.debug("argus: the queue %s ends by itself", queue)

    def after_reply_message_received(self, queue: str) -> None:
        """The reply queue went with its only reader."""

    def _forget(self, queue: str) -> None:
        self._declared.pop(queue, None)
        self._no_ack.discard(queue)
        self.connection.mailboxes.discard(queue)

    def open_queues(self) -> list[str]:
        """The queues from which it would take a message now."""
        return self._active_queues if self.qos.can_consume() else [q for q in self._active_queues if q in self._no_ack]

    def room(self, buffered: int) -> int:
        """How many messages it may be given beside those it has and those that lie ready for it."""
        if not self.qos.prefetch_count:
            return 1_000_000
        return int(self.qos.can_consume_max_estimate()) - buffered

    def is_half_empty(self) -> bool:
        return self.room(0) * 2 >= self.qos.prefetch_count

    def basic_qos(self, *arguments: Any, **options: Any) -> None:
        super().basic_qos(*arguments, **options)
        self.has_room()

    def has_room(self) -> None:
        if self.connection is not None:
            self.connection.has_room()

    def close(self) -> None:
        if self.connection is None or self.connection.is_own:
            super().close()

    def opened(self, taken: Taken) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(taken.message)
        message["properties"][PLACE] = taken.sent_at
        return message

    # Giving back

    @staticmethod
    def returned(taken: Taken) -> Parcel:
        # Before those that were sent within the same millisecond.
        return Parcel(taken.queue, taken.rank, taken.message, None, taken.sent_at - 1)

    def put_back(self, unacked: Collection[Any]) -> None:
        messages.put(self.store, [parcel for message in unacked for parcel in self._redelivered(message)])

    def _restore(self, message: Any) -> None:
        self.put_back([message])

    def _redelivered(self, message: Any) -> list[Parcel]:
        document = message.serializable()
        document["redelivered"] = True
        document["properties"]["delivery_info"]["redelivered"] = True
        place = document["properties"].get(PLACE)
        where = message.delivery_info
        parcels = []
        for queue in self._lookup(where["exchange"], where["routing_key"]):
            document["properties"][PLACE] = place
            parcels.append(self._parcel(queue, document))
        return parcels


class Batch:
    """Publishes of one producer that go out in one transaction (kombu's ``Producer.batch``)."""

    def __init__(self, channel: Channel, max_size: int) -> None:
        self.channel, self._max_size = channel, max_size
        self._parcels: list[Parcel] = []

    def publish(self, message: dict[str, Any], **options: Any) -> Any:
        return self.channel.basic_publish(message, batch=self, **options)

    def add(self, parcels: list[Parcel]) -> None:
        self._parcels += parcels
        if len(self._parcels) >= self._max_size:
            self.flush()

    def flush(self) -> None:
        parcels, self._parcels = self._parcels, []
        messages.put(self.channel.store, parcels)

    def discard(self) -> None:
        self._parcels = []

    def close(self) -> None:
        self._parcels = []
