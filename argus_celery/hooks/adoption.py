"""Messages without a token: sent by a producer without Argus, or before it was installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery import Celery
from celery.worker.request import Request

from argus_celery.flow import claim
from argus_celery.flow.runtime import Runtime
from argus_celery.hooks.durable import options_of
from argus_celery.hooks.newtask import _queue_for as queue_for
from argus_celery.hooks.newtask import milliseconds
from argus_celery.records import Message, NewTask

# Redelivery marks and delivery tags belong to one delivery; a repeated message gets its own.
_OF_THE_DELIVERY = ("delivery_tag", "delivery_info", "body_encoding", "redelivered")


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
        priority=(message.properties or {}).get("priority") or 0,
        due_at=milliseconds(headers.get("eta"), app),
        expires_at=milliseconds(headers.get("expires"), app),
        lease_ttl_ms=None if options.lease_ttl is None else round(options.lease_ttl * 1000),
        max_losses=options.max_losses,
        parent_id=headers.get("parent_id"),
        root_id=headers.get("root_id"),
        group_id=headers.get("group"),
    )


def _as_sent(app: Celery, message: Any) -> Message:
    info = message.delivery_info or {}
    exchange, routing_key = info.get("exchange") or "", info.get("routing_key") or ""
    encoding = message.content_encoding or "utf-8"
    body = message.body
    # Kombu has unpacked the body already.
    headers = {name: value for name, value in (message.headers or {}).items() if name != "compression"}
    queue = queue_for(app, exchange, routing_key)
    return Message(
        body=body.encode("utf-8") if isinstance(body, str) else bytes(body),
        content_type=message.content_type,
        content_encoding=encoding,
        headers=headers,
        properties=_kept(message.properties or {}),
        exchange=exchange,
        routing_key=routing_key,
        queue=queue.name if queue is not None else routing_key or str(app.conf.task_default_queue),
    )


def _kept(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in properties.items() if k not in _OF_THE_DELIVERY and v is not None}
