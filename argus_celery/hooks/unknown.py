"""Messages of durable tasks that this worker does not have, in a rolling deploy: Celery would fail and discard them.

The row goes back to the store and is dispatched again a little later, for whichever worker takes it then; the pauses
grow while it keeps coming here. Until the store has it back, the queue's lease covers it as it covers a lost message.
After ``argus_unknown_deadline`` in which no worker had the code, it is a dead letter.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

from celery import bootsteps

from argus_celery import signals
from argus_celery.flow.unknown import hand_on
from argus_celery.hooks.attached import attached
from argus_celery.hooks.errands import errands
from argus_celery.records import TOKEN_HEADER

FIRST_PAUSE_MS = 500
LONGEST_PAUSE_MS = 15_000
EAGER = 20
"""So often a task comes back after the first pause: each time the broker may as well give it to another worker."""
REMEMBERED = 10_000

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
    rt = attached(consumer.app).runtime
    pause = _pause_ms(str(task_id))
    errands.soon(lambda: hand_on(rt, str(task_id), token, pause))
    signals.delivery_refused.send(sender=rt.store.app_name, task_id=task_id, token=token)


_met: Counter[str] = Counter()


def _pause_ms(task_id: str) -> int:
    if len(_met) > REMEMBERED:
        _met.clear()
    _met[task_id] += 1
    repeats = max(0, _met[task_id] - EAGER)
    # The second part spreads a flood of them: a worker returns some fifty a second at most.
    return int(min(FIRST_PAUSE_MS * 1.3**repeats, LONGEST_PAUSE_MS)) + 20 * len(_met)
