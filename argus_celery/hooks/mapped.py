"""``map``, ``starmap`` and ``chunks`` of a durable task are durable too.

Celery sends a task of its own for them, whose body calls the user's. Where that is durable, ours goes in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any

from celery import Celery
from celery.canvas import chunks as Chunks
from celery.canvas import signature

from argus_celery.hooks.attached import own_task
from argus_celery.hooks.coroutines import value_of
from argus_celery.hooks.durable import durable, is_durable_name

_OURS = {"celery.map": "argus.map", "celery.starmap": "argus.starmap", "celery.chunks": "argus.chunks"}


def install(app: Celery) -> None:
    """The three tasks, and the one way by which Celery sends them."""

    @durable
    @own_task(app, "argus.map")
    def map_(task: Any, it: Iterable[Any]) -> list[Any]:
        call = signature(task, app=app).type
        return [value_of(call(item)) for item in it]

    @durable
    @own_task(app, "argus.starmap")
    def starmap(task: Any, it: Iterable[Any]) -> list[Any]:
        call = signature(task, app=app).type
        return [value_of(call(*item)) for item in it]

    @durable
    @own_task(app, "argus.chunks")
    def chunks(task: Any, it: Iterable[Any], n: int) -> Any:
        return Chunks.apply_chunks(task, it, n)

    app.send_task = _sending_ours(app, app.send_task)


def called_name(app: Celery, name: str, kwargs: Mapping[str, Any] | None) -> str:
    """The name under which this call is sent."""
    ours = _OURS.get(name)
    inner = (kwargs or {}).get("task") if ours else None
    if ours and isinstance(inner, Mapping) and is_durable_name(app, str(inner.get("task"))):
        return ours
    return name


def _sending_ours(app: Celery, send: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(send)
    def send_task(name: str, args: Any = None, kwargs: Any = None, *rest: Any, **options: Any) -> Any:
        called = called_name(app, name, kwargs)
        if called != name:
            options["task_type"] = app.tasks[called]
        return send(called, args, kwargs, *rest, **options)

    return send_task
