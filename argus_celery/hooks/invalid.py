"""Messages of durable tasks that this app cannot read: a content type it does not accept, a body that does not decode.

Celery discards them. The task fails here with that reason, so that its project can come to an end.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from celery import bootsteps
from celery.app.task import Context
from celery.states import FAILURE
from kombu.utils.encoding import safe_repr

from argus_celery.flow import chords
from argus_celery.flow.claim import claim
from argus_celery.flow.complete import complete
from argus_celery.hooks.attached import attached
from argus_celery.hooks.backend import is_foreign
from argus_celery.hooks.deliver import request_of
from argus_celery.hooks.errands import errands
from argus_celery.hooks.holder import holder
from argus_celery.hooks.parts import part_of
from argus_celery.records import TOKEN_HEADER, Delivery, Outcome, TaskState
from argus_celery.store import tasks

logger = logging.getLogger(__name__)


class InvalidTasks(bootsteps.Step):
    """Consumer step that stands before ``on_invalid_task`` and ``on_decode_error``."""

    name = "argus.invalid_tasks"

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        invalid, undecodable = consumer.on_invalid_task, consumer.on_decode_error

        def on_invalid_task(body: Any, message: Any, error: Any) -> None:
            _fail(consumer, message, error)
            invalid(body, message, error)

        def on_decode_error(message: Any, error: Any) -> None:
            _fail(consumer, message, error)
            undecodable(message, error)

        consumer.on_invalid_task, consumer.on_decode_error = on_invalid_task, on_decode_error


def _fail(consumer: Any, message: Any, error: Any) -> None:
    headers = message.headers or {}
    task_id, token = headers.get("id"), headers.get(TOKEN_HEADER)
    if isinstance(task_id, str) and isinstance(token, int) and not isinstance(token, bool):
        errands.soon(
            lambda: _end(consumer.app, Delivery(task_id, token), f"its message cannot be read: {safe_repr(error)}")
        )


def _end(app: Any, delivery: Delivery, why: str) -> None:
    rt = attached(app).runtime
    (granted,) = claim(rt, holder(), [delivery])
    if granted is not None:
        logger.error("argus: task %s fails: %s", delivery.task_id, why)
        outcome = Outcome(TaskState.FAILED, error=why, undelivered=is_foreign(app.backend))
        written = complete(rt, granted, _telling(app, delivery.task_id, outcome))
        attached(app).fire(written.ready)


def _telling(app: Any, task_id: str, outcome: Outcome) -> Outcome:
    """What follows is told from the message as it is stored; of one that nobody can read only the chord is known."""
    rt = attached(app).runtime
    message = rt.store.statement(lambda connection: tasks.messages(connection, [task_id]))[task_id]
    try:
        request_of(app, message)
    except Exception:
        request = Context(message.headers)
        request.chord = bool(request.group) and chords.is_known(rt, request.group)
        return replace(outcome, part=part_of(app, request, FAILURE, Exception(outcome.error)))
    return replace(outcome, follows=True)
