"""Which tasks are durable: by the decorator, wherever it stands, or by name patterns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from celery import Celery, Task
from celery._state import _get_active_apps
from celery.local import PromiseProxy, Proxy

from argus_celery.errors import SettingError

OPTIONS = "argus_options"
"""Attribute of a decorated function, and then of its task class."""

_NEVER = ("celery.*", "argus.*")


@dataclass(frozen=True, slots=True)
class DurableOptions:
    """Per-task options; ``None`` is the setting."""

    lease_ttl: float | None = None
    max_losses: int | None = None

    def __post_init__(self) -> None:
        if self.lease_ttl is not None and not self.lease_ttl >= 1:
            raise SettingError(f"durable(lease_ttl=...) must be at least 1 second, not {self.lease_ttl!r}")
        if self.max_losses is not None and not self.max_losses >= 1:
            raise SettingError(f"durable(max_losses=...) must be at least 1, not {self.max_losses!r}")


def durable(target: Any = None, *, lease_ttl: float | None = None, max_losses: int | None = None) -> Any:
    """Make a task durable: above or below ``@app.task`` and ``@shared_task``, on a task class, or on a task.

    ``lease_ttl`` (seconds) and ``max_losses`` stand above the settings of the same name for this task.
    """
    options = DurableOptions(lease_ttl, max_losses)
    if target is None:
        return lambda later: _marked(later, options)
    return _marked(target, options)


def _marked(target: Any, options: DurableOptions) -> Any:
    # A proxy pretends to be its object, and looking through it would make the task too early.
    kind = type(target)
    if kind is PromiseProxy:
        target.__then__(lambda: mark_task(target._get_current_object(), options))
    elif kind is Proxy:
        _mark_shared(target, options)
    elif isinstance(target, Task):
        mark_task(target, options)
    else:
        setattr(target, OPTIONS, options)
    return target


def _mark_made_of(proxy: Any, options: DurableOptions) -> None:
    mark_task(proxy._get_current_object(), options)


def mark_task(task: Task, options: DurableOptions) -> None:
    """A task that exists already: note the options on its class and, if its app has Argus, install the hooks."""
    from argus_celery.hooks.annotations import install_on

    cls = type(task)
    setattr(cls, OPTIONS, options)
    if cls.__bound__:
        install_on(cls)


def _mark_shared(proxy: Any, options: DurableOptions) -> None:
    """``@shared_task`` gives a proxy over a look-up; apps make the task from the function when they finalize."""
    lookup = object.__getattribute__(proxy, "_Proxy__local")
    cells = dict(zip(lookup.__code__.co_freevars, lookup.__closure__ or (), strict=True))
    fun: Callable[..., Any] = cells["fun"].cell_contents
    setattr(fun, OPTIONS, options)
    for app in _get_active_apps():
        if app.finalized:
            _mark_made(app, fun, options)


def _mark_made(app: Celery, fun: Callable[..., Any], options: DurableOptions) -> None:
    for task in list(app._tasks.values()):
        if getattr(task, "_decorated_fun", None) is fun:
            mark_task(task, options)


def options_of(task: Any) -> DurableOptions:
    """The options of a durable task (class or instance)."""
    return _own_options(task) or DurableOptions()


def is_durable(task: Any) -> bool:
    """Is this task (class or instance) durable in its app?"""
    return _own_options(task) is not None or matches(task.app, task.name)


def _own_options(task: Any) -> DurableOptions | None:
    fun = getattr(task, "_decorated_fun", None)
    options: DurableOptions | None = getattr(task, OPTIONS, None) or getattr(fun, OPTIONS, None)
    return options


def matches(app: Celery, name: str | None) -> bool:
    """Does ``argus_durable_tasks`` name it? ``celery.*`` and ``argus.*`` are never durable."""
    patterns = app.conf.get("argus_durable_tasks") or ()
    if not patterns or not name or any(fnmatchcase(name, never) for never in _NEVER):
        return False
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def is_durable_name(app: Celery, name: str) -> bool:
    """The same for a name that may belong to a task which this process does not have."""
    task = app._tasks.get(name)
    return is_durable(task) if task is not None else matches(app, name)
