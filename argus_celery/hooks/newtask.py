"""From what Celery is about to publish to what is recorded: the wire message, and when, where and for whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from celery import Celery
from celery.app.amqp import task_message
from kombu import Exchange, Queue
from kombu.common import Broadcast
from kombu.compression import compress
from kombu.serialization import dumps
from kombu.transport.native_delayed_delivery import _delay_prefix_re as DELAY_PREFIX

from argus_celery.context import joined
from argus_celery.errors import BadTask
from argus_celery.flow import checks, steer
from argus_celery.flow.checks import check_name
from argus_celery.hooks.clock import milliseconds
from argus_celery.hooks.declared import as_declared, queue_for
from argus_celery.hooks.durable import DurableOptions
from argus_celery.hooks.outbox import Execution
from argus_celery.records import TOKEN_HEADER, Message, NewTask

# Of the call, not of the message. The expiration is the broker's clock's; the store judges ``expires``.
_NOT_KEPT = {"retry", "retry_policy", "timeout", "confirm_timeout", "expiration"}


class Timed(task_message):
    """A task message that still knows which times its caller gave relative to now."""

    countdown: float | None = None
    expires_in: float | None = None


def check_times(label: str, given: Mapping[str, Any]) -> None:
    """Raises ``BadTask`` for seconds that are no length of time."""
    for option in ("countdown", "expires"):
        if isinstance(given.get(option), (int, float)):
            checks.milliseconds(f"{option} of {label}", given[option])


def new_task(
    app: Celery, body: Any, publish: Mapping[str, Any], queue: Any, timed: Any, options: DurableOptions
) -> NewTask:
    """What is to be recorded for one call of ``Producer.publish``."""
    headers = publish["headers"]
    message = wire_message(app, body, publish, queue)
    _check_runs_once(headers["task"], queue)
    label = f"{headers['task']}[{headers['id']}]"
    countdown, expires_in = getattr(timed, "countdown", None), getattr(timed, "expires_in", None)
    if headers.get("expires") is None:
        expires_in = publish.get("expiration")  # the broker's own way to say it, which a repeat would begin anew
    return NewTask(
        id=headers["id"],
        name=headers["task"],
        message=message,
        priority=urgency(app, publish.get("priority")),
        ranked=publish.get("priority") is not None,
        delay_ms=None if countdown is None else max(0, checks.milliseconds(f"countdown of {label}", countdown)),
        due_at=None if countdown is not None else milliseconds(headers.get("eta"), app, f"the eta of {label}"),
        expires_in_ms=None if expires_in is None else checks.milliseconds(f"expires of {label}", expires_in),
        expires_at=None if expires_in is not None else milliseconds(headers.get("expires"), app, f"expires of {label}"),
        lease_ttl_ms=None if options.lease_ttl is None else round(options.lease_ttl * 1000),
        max_losses=options.max_losses,
        parent_id=headers.get("parent_id"),
        root_id=headers.get("root_id"),
        group_id=headers.get("group"),
        takes_over=bool(headers.get("replaced_task_nesting")),
        follows=_leads_on(body),
    )


def urgency(app: Celery, priority: int | None) -> int:
    """The store hands out the higher one first, as most brokers do; on Redis 0 is the most urgent."""
    if not priority:
        return 0
    return -priority if app.connection_for_write().transport.driver_type == "redis" else priority


def _check_runs_once(name: str, queue: Any) -> None:
    if isinstance(queue, Broadcast):
        raise BadTask(
            f"{name} is durable and runs once, but the broadcast queue {queue.alias or queue.name!r} gives every worker"
            " a copy: send it to another queue, or leave the task ordinary"
        )


def _leads_on(body: Any) -> bool:
    """Is a chain or a chord behind it, in the body that protocol 2 gives a task?"""
    embed = body[2]
    return bool(embed.get("chain") or embed.get("chord"))


def placed(task: NewTask, argus: Any, run: Execution | None, project: str | None, key: str | None) -> NewTask:
    """In the project that was named, else that of the block, else the parent's, else the default one."""
    project = joined.get() if project is None else project
    if project is not None:
        check_name("a project's name", project)
    if run is None:
        return task if project is None and key is None else replace(task, project=project, key=key)
    if project is None:
        return replace(task, project_id=run.claim.project_id, key=key, inside=True)
    project_id = steer.open_project(argus.runtime, project)
    inside = project_id == run.claim.project_id
    return replace(task, project=project, project_id=project_id, key=key, inside=inside)


def wire_message(app: Celery, body: Any, publish: Mapping[str, Any], queue: Any) -> Message:
    """The message as kombu would send it; serialised here, so that every replay is the same bytes."""
    content_type, content_encoding, data = dumps(body, serializer=publish.get("serializer"))
    data = data.encode(content_encoding) if isinstance(data, str) else data
    headers = {name: value for name, value in publish["headers"].items() if name != TOKEN_HEADER}
    if publish.get("compression"):
        data, headers["compression"] = compress(data, publish["compression"])
    exchange, routing_key, queue_name = _route(app, publish, queue)
    sent = {"exchange", "routing_key", "serializer", "compression", "headers", "declare"} | _NOT_KEPT
    return Message(
        body=data,
        content_type=content_type,
        content_encoding=content_encoding,
        headers=headers,
        properties={name: value for name, value in publish.items() if name not in sent},
        exchange=exchange,
        routing_key=routing_key,
        queue=queue_name,
        declares=as_declared(app, publish.get("declare")),
    )


def check_carried(producer: Any, message: Message) -> None:
    """AMQP carries fewer types in headers than the store: raises what Celery raises, before anything is recorded."""
    if producer.connection.transport.driver_type == "amqp":
        from amqp.basic_message import Message as Frame

        Frame(application_headers=dict(message.headers))._serialize_properties()


def _route(app: Celery, publish: Mapping[str, Any], queue: Any) -> tuple[str, str, str]:
    exchange, routing_key = _name(publish.get("exchange")), publish.get("routing_key") or ""
    if DELAY_PREFIX.match(routing_key):
        # RabbitMQ's own delay of quorum queues: the store does the waiting, so the message goes to the real queue.
        routing_key = DELAY_PREFIX.sub("", routing_key, count=1)
        found = queue_for(app, None, routing_key)
        return (_name(found.exchange), routing_key, found.name) if found else ("", routing_key, routing_key)
    # An exchange that the call names may lead to another queue than the one that Celery declares for it.
    found = queue_for(app, exchange, routing_key) if exchange else None
    name = found.name if found else _name(queue) or _first_name(publish.get("declare")) or routing_key
    return exchange, routing_key, name or str(app.conf.task_default_queue)


def _first_name(declared: Any) -> str:
    return next((one.name for one in declared or () if isinstance(one, Queue)), "")


def _name(named: Any) -> str:
    return (named.name if isinstance(named, (Exchange, Queue)) else named) or ""
