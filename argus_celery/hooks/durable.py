"""Which tasks are durable: by the decorator, wherever it stands, or by name patterns."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from celery import Celery, Task
from celery._state import _get_active_apps
from celery.local import PromiseProxy, Proxy

from argus_celery.config import NEVER_DURABLE, did_you_mean, fault_of_count, fault_of_seconds
from argus_celery.errors import SettingError
from argus_celery.hooks.keyed import Key, check_key, check_named
from argus_celery.hooks.limits import Limit, limits_of
from argus_celery.store.names import fits

OPTIONS = "argus_options"
"""Attribute of a decorated function, and then of its task class."""

_NEVER = tuple(f"{prefix}*" for prefix in NEVER_DURABLE)


@dataclass(frozen=True, slots=True)
class DurableOptions:
    """Per-task options; ``None`` is the setting."""

    lease_ttl: float | None = None
    max_losses: int | None = None
    unique: bool | Key | None = None
    limits: tuple[Limit, ...] = ()
    progress_timeout: float | None = None

    def __post_init__(self) -> None:
        if self.unique is not None and not isinstance(self.unique, bool):
            check_key("durable(unique=...)", self.unique)
        for name in ("lease_ttl", "progress_timeout"):
            value = getattr(self, name)
            if value is not None and (fault := fault_of_seconds(value, least=1)) is not None:
                raise SettingError(f"durable({name}=...) {fault}")
        if self.max_losses is not None and (fault := fault_of_count(self.max_losses)) is not None:
            raise SettingError(f"durable(max_losses=...) {fault}")


def durable(
    target: Any = None,
    *,
    lease_ttl: float | None = None,
    max_losses: int | None = None,
    unique: bool | Key | None = None,
    limit: Limit | Sequence[Limit] | None = None,
    progress_timeout: float | None = None,
    **unknown: Any,
) -> Any:
    """Make a task durable: above or below ``@app.task`` and ``@shared_task``, on a task class, or on a task.

    ``lease_ttl`` (seconds) and ``max_losses`` stand above the settings of the same name for this task. ``unique``:
    while one task of a kind lives, a call for another leads to it; ``True`` is the kind of all arguments, a key
    (``"args.account_id"``, or a function of the arguments) that of its value. ``limit``: a ``Limit``, or several.
    ``progress_timeout`` (seconds): a run that shows no progress for so long loses its lease, though its worker lives.
    """
    if unknown:
        known = [field.name.replace("limits", "limit") for field in fields(DurableOptions)]
        raise SettingError(f"durable() has no option {next(iter(unknown))}.{did_you_mean(next(iter(unknown)), known)}")
    options = DurableOptions(lease_ttl, max_losses, unique, limits_of(limit), progress_timeout)
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
        if inspect.isfunction(target):
            _check_keys(options, target)
        setattr(target, OPTIONS, options)
    return target


def _check_keys(options: DurableOptions, function: Any) -> None:
    """What a key names is there, as far as the function tells."""
    if isinstance(options.unique, str):
        check_named("durable(unique=...)", options.unique, inspect.signature(function))
    for one in options.limits:
        if isinstance(one.key, str):
            check_named("Limit(key=...)", one.key, inspect.signature(function))


def mark_task(task: Task, options: DurableOptions) -> None:
    """A task that exists already: note the options on its class and, if its app has Argus, install the hooks."""
    from argus_celery.hooks.annotations import install_on

    cls = type(task)
    _check_keys(options, task.run)
    setattr(cls, OPTIONS, options)
    if cls.__bound__:
        install_on(cls)


def _mark_shared(proxy: Any, options: DurableOptions) -> None:
    """``@shared_task`` gives a proxy over a look-up; apps make the task from the function when they finalize."""
    lookup = object.__getattribute__(proxy, "_Proxy__local")
    cells = dict(zip(lookup.__code__.co_freevars, lookup.__closure__ or (), strict=True))
    fun: Callable[..., Any] = cells["fun"].cell_contents
    _check_keys(options, fun)
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


def lease_ttl_ms(app: Celery, name: str) -> int | None:
    """The lease TTL of a task of this name, where this process knows it to have one of its own."""
    ttl = options_of(app._tasks.get(name)).lease_ttl
    return None if ttl is None else round(ttl * 1000)


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
    if not patterns or not name or any(fits(name, never) for never in _NEVER):
        return False
    return any(fits(name, pattern) for pattern in patterns)


def is_durable_name(app: Celery, name: str) -> bool:
    """The same for a name that may belong to a task which this process does not have."""
    task = app._tasks.get(name)
    return is_durable(task) if task is not None else matches(app, name)
