"""What a result backend does before a task is sent: wait for its result in advance, over a server that may be away.

A durable call must not hang or fail on that. Only ``rpc://`` needs it (its queue has to be there before the result is),
and does it where the broker answers; other backends look again when the result is asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from celery import Celery
from celery.backends.rpc import RPCBackend

from argus_celery.hooks.attached import attached

_sending = threading.local()


def sending(task_id: str | None) -> None:
    """The durable task that this thread is about to send; ``None`` for any other."""
    _sending.task_id = task_id


def be_patient(app: Celery, backend: Any) -> None:
    """Of a backend that the app has made."""
    theirs: Callable[[Any, str], Any] = backend.on_task_call

    def on_task_call(producer: Any, task_id: str) -> Any:
        if getattr(_sending, "task_id", None) != task_id:
            return theirs(producer, task_id)
        if isinstance(backend, RPCBackend) and attached(app).publisher.reaches(producer):
            return theirs(producer, task_id)
        return None

    backend.on_task_call = on_task_call
