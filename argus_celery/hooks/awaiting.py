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


def install(app: Celery) -> None:
    """For the backends this app makes, one for each thread, and for the one it has made."""
    make = app._get_backend

    def make_patient() -> Any:
        return _patient(app, make())

    app._get_backend = make_patient
    made = app._backend
    if made is not None:
        _patient(app, made)


def _patient(app: Celery, backend: Any) -> Any:
    theirs: Callable[[Any, str], Any] = backend.on_task_call

    def on_task_call(producer: Any, task_id: str) -> Any:
        if getattr(_sending, "task_id", None) != task_id:
            return theirs(producer, task_id)
        if isinstance(backend, RPCBackend) and attached(app).publisher.reaches(producer):
            return theirs(producer, task_id)
        return None

    backend.on_task_call = on_task_call
    return backend
