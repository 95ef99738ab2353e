"""How durable tasks get their hooks: by annotation, which Celery asks for each task that is bound to the app.

It works for any base class and any way of making a task, and the user's own ``task_annotations`` go through it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from celery import Celery
from celery.app.annotations import prepare, resolve_all

from argus_celery.hooks.attached import attached
from argus_celery.hooks.coroutines import binding, drive_body
from argus_celery.hooks.durable import is_durable
from argus_celery.hooks.fence import fenced_backend
from argus_celery.hooks.publish import first_result
from argus_celery.hooks.replace import handing_on
from argus_celery.hooks.trace import SLOT

REQUEST = "celery.worker.request:Request"
DURABLE_REQUEST = "argus_celery.hooks.request:ArgusRequest"


class Annotations:
    """Stands in for ``app.annotations``: the user's annotations first, then the hooks of durable tasks."""

    def __init__(self, app: Celery) -> None:
        self.app = app

    def __iter__(self) -> Iterator[Any]:
        yield self

    def annotate(self, task: Any) -> dict[str, Any]:
        theirs: dict[str, Any] = {}
        for found in resolve_all(prepare(self.app.conf.task_annotations), task):
            # resolve_all gives the task's own, then "*"; a later one wins, as in Celery.
            theirs.update(found)
        if not is_durable(task):
            return theirs
        return {**theirs, **_hooks(task, theirs)}

    def annotate_any(self) -> None:
        return None


def install(app: Celery) -> None:
    """Serve all tasks of this app: those to come by annotation, those bound already at once."""
    app.__dict__["annotations"] = Annotations(app)
    for task in list(app._tasks.values()):
        cls = type(task)
        if cls.__bound__ and is_durable(cls):
            install_on(cls)


def install_on(cls: Any) -> None:
    """The hooks for a task class that is bound already; a class whose app has no Argus is left alone."""
    try:
        attached(cls.app)
    except LookupError:
        return
    tracer = cls.__dict__.get("__trace__")
    if tracer is SLOT:
        return
    for name, hook in _hooks(cls, {}).items():
        setattr(cls, name, hook)
    drive_body(cls)
    if tracer is not None:
        for task in cls.app._tasks.values():
            if type(task) is cls:
                task.__trace__ = tracer


def _hooks(cls: Any, theirs: dict[str, Any]) -> dict[str, Any]:
    hooks: dict[str, Any] = {"__trace__": SLOT, "Request": _request(theirs.get("Request", cls.Request))}
    hooks["backend"] = fenced_backend(cls, theirs.get("backend"))
    hooks["on_replace"] = handing_on(cls)
    hooks["AsyncResult"] = first_result(cls)
    hooks["on_bound"] = binding(cls)
    return hooks


def _request(base: Any) -> Any:
    if base in (REQUEST, DURABLE_REQUEST):
        return DURABLE_REQUEST
    from argus_celery.hooks.request import request_class

    return request_class(base)
