"""Brokers whose messages a test can read as they lie there, and lose."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import redis
import sqlalchemy as sa
from celery import Celery

from argus_celery.records import TOKEN_HEADER
from argus_celery.store.broker import broker, messages
from argus_celery.store.urls import store_url_of


@dataclass
class Broker:
    """``lose`` empties a queue and returns its messages raw, less what belongs to one publish."""

    url: str

    def lose(self, app: Celery, queue: str) -> list[Any]:
        found = [self.comparable(one) for one in self.raw(app, queue)]
        with app.connection_for_write() as connection:
            connection.default_channel.queue_purge(queue)
        return found

    def raw(self, app: Celery, queue: str) -> list[Any]:
        raise NotImplementedError

    def comparable(self, raw: Any) -> Any:
        """The text of an envelope; only the delivery tag is each publish's own."""
        text = raw.decode() if isinstance(raw, bytes) else raw
        return text.replace(json.loads(text)["properties"]["delivery_tag"], "the delivery tag")


class Embedded(Broker):
    def raw(self, app: Celery, queue: str) -> list[Any]:
        store = broker(str(store_url_of(self.url)))
        query = sa.select(messages.c.message).where(messages.c.queue == queue)
        return list(store.statement(lambda connection: connection.execute(query).scalars().all()))


class Redis(Broker):
    def raw(self, app: Celery, queue: str) -> list[Any]:
        client = redis.Redis.from_url(self.url)
        prefix = str(app.conf.broker_transport_options.get("global_keyprefix", ""))
        found = []
        for key in sorted(client.keys(f"{prefix}{queue}*")):
            found += client.lrange(key, 0, -1)
        return found


class Rabbit(Broker):
    def raw(self, app: Celery, queue: str) -> list[Any]:
        with app.connection_for_write() as connection:
            channel = connection.default_channel
            found = []
            while (message := channel.basic_get(queue, no_ack=True)) is not None:
                body = message.body.encode() if isinstance(message.body, str) else bytes(message.body)
                found.append((body, message.properties, message.delivery_info))
            return found

    def comparable(self, raw: Any) -> Any:
        body, properties, where = raw
        return body, dict(properties), (where["exchange"], where["routing_key"])


BROKERS = {"argus": Embedded, "redis": Redis, "rabbitmq": Rabbit}


def headers_of(message: Any) -> dict[str, Any]:
    headers = message[1]["application_headers"] if isinstance(message, tuple) else json.loads(message)["headers"]
    return dict(headers)


def as_of_celery(message: Any) -> Any:
    """Without what an app, or Argus, has of its own: the token, the app's reply address, the broker's own expiry."""
    if isinstance(message, tuple):
        body, properties, where = message
        headers = {k: v for k, v in properties["application_headers"].items() if k != TOKEN_HEADER}
        properties = {**properties, "application_headers": headers, "reply_to": None}
        properties.pop("expiration", None)
        return body, properties, where
    document = json.loads(message)
    document["headers"].pop(TOKEN_HEADER, None)
    document["properties"].update(reply_to=None)
    document["properties"].pop("expiration", None)
    return document
