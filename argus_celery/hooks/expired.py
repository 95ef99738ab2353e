"""Tasks that came too late are ended in the store; the worker that did it says so, as Celery's does on meeting one."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from celery import signals

from argus_celery.hooks.attached import attached
from argus_celery.hooks.deliver import request_of
from argus_celery.records import Message
from argus_celery.store import tasks

logger = logging.getLogger(__name__)


def say(worker: Any, ids: Sequence[str]) -> None:
    """``task_revoked`` and the event of that name, for whoever listens."""
    dispatcher = getattr(worker.consumer, "event_dispatcher", None)
    send_event = dispatcher.send if dispatcher is not None and dispatcher.enabled else None
    if not ids or not (send_event or signals.task_revoked.receivers):
        return
    found = attached(worker.app).runtime.store.statement(lambda connection: tasks.messages(connection, ids))
    for task_id, message in found.items():
        try:
            _send_signal(worker.app, message)
            if send_event is not None:
                send_event("task-revoked", uuid=task_id, terminated=False, signum=None, expired=True)
        except Exception:
            logger.exception("argus: %s has expired; telling who listens failed", task_id)


def _send_signal(app: Any, message: Message) -> None:
    task, request = app.tasks.get(message.headers.get("task")), request_of(app, message)
    signals.task_revoked.send(sender=task, request=request, terminated=False, signum=None, expired=True)
