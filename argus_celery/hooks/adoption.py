"""Messages without a token: sent by a producer without Argus, or before it was installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery import Celery
from celery.worker.request import Request
from kombu.compression import compress

from argus_celery.flow import claim
from argus_celery.flow.runtime import Runtime
from argus_celery.hooks.channel import PLACE
from argus_celery.hooks.clock import milliseconds
from argus_celery.hooks.declared import queue_for
from argus_celery.hooks.durable import options_of
from argus_celery.hooks.limits import bounds_of
from argus_celery.hooks.newtask import urgency
from argus_celery.records import Message, NewTask

# Redelivery marks and delivery tags belong to one delivery; a repeated message gets its own.
_OF_THE_DELIVERY = {"delivery_tag", "delivery_info", "body_encoding", "redelivered", PLACE}
# RabbitMQ gives all of a message as properties; these have a place of their own. The store judges the expiration.
_KEPT_ELSEWHERE = {"content_type", "content_encoding", "application_headers", "expiration"}


def adopt(rt: Runtime, message: Any, request: Request) -> int:
    """Record it and return the token to claim it with; 0 if it is known already, or scheduled for later."""
    return claim.adopt(rt, new_task(request.app, message, request))


def new_task(app: Celery, message: Any, request: Request) -> NewTask:
    """What the producer would have recorded."""
    headers, options = request.request_dict, options_of(request.task)
    return NewTask(
        id=request.id,
        name=request.task.name,
        message=_as_sent(app, message),
        priority=urgency(app, (message.properties or {}).get("priority")),
        ranked=True,  # whatever it names: the broker has the message already
        due_at=milliseconds(headers.get("eta"), app, f"the eta of {request.task.name}[{request.id}]"),
        expires_in_ms=None if headers.get("expires") else _expiration(message.properties or {}),
        expires_at=milliseconds(headers.get("expires"), app, f"expires of {request.task.name}[{request.id}]"),
        lease_ttl_ms=None if options.lease_ttl is None else round(options.lease_ttl * 1000),
        max_losses=options.max_losses,
        parent_id=headers.get("parent_id"),
        root_id=headers.get("root_id"),
        group_id=headers.get("group"),
        follows=True,
        limits=bounds_of(request.task, request.task.name, options.limits, *_arguments(request)),
    )


def _arguments(request: Request) -> tuple[Any, Any]:
    args, kwargs, _ = request._payload
    return args, kwargs


def _as_sent(app: Celery, message: Any) -> Message:
    info = message.delivery_info or {}
    exchange, routing_key = info.get("exchange") or "", info.get("routing_key") or ""
    body = message.body.encode("utf-8") if isinstance(message.body, str) else bytes(message.body)
    headers = dict(message.headers or {})
    if headers.get("compression"):
        body, _ = compress(body, headers["compression"])  # kombu has unpacked it
    queue = queue_for(app, exchange, routing_key)
    return Message(
        body=body,
        content_type=message.content_type,
        content_encoding=message.content_encoding or "utf-8",
        headers=headers,
        properties=_kept(message.properties or {}),
        exchange=exchange,
        routing_key=routing_key,
        queue=queue.name if queue is not None else routing_key or str(app.conf.task_default_queue),
    )


def _expiration(properties: Mapping[str, Any]) -> int | None:
    """The broker's own, in milliseconds from when the message was sent; it has come in time."""
    given = properties.get("expiration")
    return int(given) if given else None


def _kept(properties: Mapping[str, Any]) -> dict[str, Any]:
    left_out = _OF_THE_DELIVERY | _KEPT_ELSEWHERE
    return {name: value for name, value in properties.items() if name not in left_out and value is not None}
