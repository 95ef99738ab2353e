"""The queues of a message: the app's own, found by route, and those of one call, which the message has to bring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from celery import Celery
from kombu import Exchange, Queue
from kombu.transport.virtual.exchange import TopicExchange

from argus_celery.records import Message

_topics = TopicExchange(None)


def queue_for(app: Celery, exchange: str | None, routing_key: str) -> Queue | None:
    """The app's queue to which this route leads; without an exchange, by the routing key alone."""
    queues = dict(app.amqp.queues).values()
    exact = (queue for queue in queues if queue.routing_key == routing_key and _is_of(queue, exchange))
    return next(exact, None) or next((queue for queue in queues if _matches(queue, exchange, routing_key)), None)


def _is_of(queue: Queue, exchange: str | None) -> bool:
    return exchange in (None, queue.exchange.name)


def _matches(queue: Queue, exchange: str | None, routing_key: str) -> bool:
    if not exchange or not _is_of(queue, exchange):
        return False
    if queue.exchange.type == "topic":
        return bool(_topics._match(_topics.key_to_pattern(queue.routing_key or ""), routing_key))
    return queue.exchange.type in ("fanout", "headers")


def as_declared(app: Celery, entities: Any) -> Sequence[Mapping[str, Any]]:
    """What another process needs to declare the queues of this call that are not the app's own."""
    queues = [one for one in entities or () if isinstance(one, Queue)]
    foreign = (one for one in queues if not app.amqp.queues.get(one.name) == one)  # noqa: SIM201 - kombu's != warns
    return tuple({k: v for k, v in queue.as_dict(recurse=True).items() if k != "bindings"} for queue in foreign)


def declared(app: Celery, message: Message) -> list[Queue]:
    """What is to be there before the message is published."""
    own = [Queue(**{**one, "exchange": Exchange(**one["exchange"])}) for one in message.declares]
    names = {queue.name for queue in own}
    return own if message.queue in names else [*own, *_of_the_app(app, message)]


def _of_the_app(app: Celery, message: Message) -> list[Queue]:
    known = message.queue in app.amqp.queues or message.queue in app.amqp.queues.aliases
    if not known and message.exchange not in ("", message.queue):
        return []  # the exchange of somebody else: a queue made for it would be another one
    try:
        return [app.amqp.queues[message.queue]]
    except KeyError:
        return []  # task_create_missing_queues is off, and it is not one of ours
