"""Messages of durable tasks that this worker does not have, in a rolling deploy: Celery would fail and discard them.

The message is acked and nothing else is done: the row still waits under the queue's lease, and is dispatched again when
that lapses, for a worker that knows the task.
"""

from __future__ import annotations

import logging
from typing import Any

from celery import bootsteps

from argus_celery import signals
from argus_celery.hooks.attached import attached
from argus_celery.records import TOKEN_HEADER

logger = logging.getLogger(__name__)


class UnknownTasks(bootsteps.Step):
    """Consumer step that stands before ``on_unknown_task``."""

    name = "argus.unknown_tasks"

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        discard = consumer.on_unknown_task

        def on_unknown_task(body: Any, message: Any, error: Any) -> None:
            token = (message.headers or {}).get(TOKEN_HEADER)
            if token is None:
                discard(body, message, error)
            else:
                _leave_to_others(consumer, message, token)

        consumer.on_unknown_task = on_unknown_task


def _leave_to_others(consumer: Any, message: Any, token: int) -> None:
    name, task_id = message.headers.get("task"), message.headers.get("id")
    logger.error(
        "argus: this worker does not know the task %s (id %s). It is kept, and will be dispatched again for a worker"
        " that does: deploy the code, or let this worker consume other queues",
        name,
        task_id,
    )
    message.ack_log_error(logger, consumer.connection_errors)
    store = attached(consumer.app).runtime.store
    signals.delivery_refused.send(sender=store.app_name, task_id=task_id, token=token)
