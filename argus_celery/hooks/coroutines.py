"""Durable tasks whose body is ``async def``: Celery calls ``run``, which here comes back with the value and not with a
coroutine. A direct call gives the coroutine, as in Python.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Any

from kombu.exceptions import EncodeError

from argus_celery.hooks.carried import Carried, CarriedCoroutine
from argus_celery.hooks.driven import drive
from argus_celery.hooks.models import dumping
from argus_celery.hooks.timelimits import limits_of


def drive_body(cls: Any) -> None:
    """Of a durable task class, if its body is a coroutine function; and of its tasks that are made already."""
    run = inspect.getattr_static(cls, "run", None)
    if run is not None and not isinstance(run, DrivenRun) and is_coroutine_function(run):
        cls.run = DrivenRun(run)
    for task in list(cls.app._tasks.values()):
        if type(task) is cls:
            _drive_original(task)


def binding(cls: Any) -> Any:
    """The hook ``on_bound``, which Celery also calls of classes derived from one that is a task already."""
    theirs = inspect.getattr_static(cls, "on_bound")

    def on_bound(cls: Any, app: Any) -> None:
        theirs.__get__(None, cls)(app)
        drive_body(cls)

    return classmethod(on_bound)


def _drive_original(task: Any) -> None:
    """``autoretry_for`` calls what it has put aside, which is the body as it was before the hook came."""
    original = task.__dict__.get("_orig_run")
    if original is not None and is_coroutine_function(original) and not hasattr(original, "is_driven"):
        task._orig_run = _driven(task, original, dumping(task.app, original))


def is_coroutine_function(function: Any) -> bool:
    """Also behind decorators that use ``functools.wraps``, and ``staticmethod``."""
    while isinstance(function, (staticmethod, classmethod, partial)):
        function = function.func if isinstance(function, partial) else function.__func__
    return inspect.iscoroutinefunction(inspect.unwrap(function))


def value_of(called: Any) -> Any:
    """What a task that was called directly comes to."""
    return drive(CarriedCoroutine(called, Carried()), called.__qualname__) if inspect.iscoroutine(called) else called


def refuse_coroutine(task_id: str, result: Any, request: Any) -> None:
    """Of a body that cannot be seen to be a coroutine function. Raises ``EncodeError``."""
    if inspect.iscoroutine(result):
        result.close()
        name = getattr(request, "task", None) or "the task"
        raise EncodeError(
            f"{name}[{task_id}] gave a coroutine that nothing awaits: make its body an async def, and write what"
            " decorates it with functools.wraps"
        )


class DrivenRun:
    """Stands in for ``run`` of a task class."""

    def __init__(self, run: Any) -> None:
        self.run = run
        self._dumped: Callable[[Any], Any] | None = None

    def __get__(self, task: Any, cls: Any = None) -> Any:
        bound = self.run.__get__(task, cls)
        if task is None:
            return bound
        self._dumped = self._dumped or dumping(task.app, bound)
        return _driven(task, bound, self._dumped)


def _driven(
    task: Any, run: Callable[..., Coroutine[Any, Any, Any]], dumped: Callable[[Any], Any]
) -> Callable[..., Any]:
    @wraps(run)
    def driven(*args: Any, **kwargs: Any) -> Any:
        request, body = task.request, CarriedCoroutine(run(*args, **kwargs), Carried())
        if request.called_directly or getattr(request, "argus_driven", False):
            return _returning(body, dumped)
        request.argus_driven = True  # what the body calls of itself is a coroutine to it
        return dumped(drive(body, f"{task.name}[{request.id}]", limits_of(task)))

    driven.is_driven = True  # type: ignore[attr-defined]
    return driven


async def _returning(body: CarriedCoroutine, dumped: Callable[[Any], Any]) -> Any:
    return dumped(await body)
