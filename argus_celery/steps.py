"""``@step``: a function whose calls inside a running durable task are steps of it."""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from argus_celery.config import did_you_mean, fault_of_count, fault_of_seconds
from argus_celery.errors import BadStep, BadTask, SettingError
from argus_celery.flow import canonical, perform
from argus_celery.flow.trying import OPTIONS, StepOptions
from argus_celery.hooks.keyed import check_key, check_named, found
from argus_celery.run import steps_here
from argus_celery.store.names import fault_of


def step(
    target: Any = None,
    *,
    name: str | None = None,
    key: str | Callable[..., Any] | None = None,
    retries: int = 0,
    backoff: float = 1.0,
    backoff_max: float = 60.0,
    retry_for: type[Exception] | Sequence[type[Exception]] = (Exception,),
    timeout: float | None = None,
    **unknown: Any,
) -> Any:
    """Calls of this function inside a running durable task are steps; elsewhere it is just called.

    ``name`` instead of its qualified name; ``key`` (``"args.url"``, or a function of the arguments) goes behind it, as
    ``name("a")``. ``retries`` more calls if it raises one of ``retry_for``, after ``backoff`` seconds, doubling up to
    ``backoff_max``. ``timeout``: seconds for each call; of what is no coroutine function, only in the main thread of a
    process (the pools prefork and solo). Raises ``SettingError`` for an option that cannot work.
    """
    if unknown:
        known = [field.name for field in fields(StepOptions)]
        raise SettingError(f"step() has no option {next(iter(unknown))}.{did_you_mean(next(iter(unknown)), known)}")
    errors = (retry_for,) if isinstance(retry_for, type) else _each(retry_for)
    options = StepOptions(name, key, retries, backoff, backoff_max, errors, timeout)
    _check(options)
    if target is None:
        return lambda later: _decorated(later, options)
    return _decorated(target, options)


def _each(given: Any) -> tuple[Any, ...]:
    return tuple(given) if isinstance(given, Iterable) else (given,)


def _check(options: StepOptions) -> None:
    if options.name is not None and (fault := fault_of(options.name)) is not None:
        raise SettingError(f"step(name=...) {fault}")
    if options.key is not None:
        check_key("step(key=...)", options.key)
    if (fault := fault_of_count(options.retries, least=0)) is not None:
        raise SettingError(f"step(retries=...) {fault}")
    for name, least in (("backoff", 0.0), ("backoff_max", 1e-3), ("timeout", 1e-3)):
        value = getattr(options, name)
        if (name, value) != ("timeout", None) and (fault := fault_of_seconds(value, least)) is not None:
            raise SettingError(f"step({name}=...) {fault}")
    if not options.retry_for or not all(
        isinstance(one, type) and issubclass(one, Exception) for one in options.retry_for
    ):
        raise SettingError(
            f"step(retry_for=...) must be exceptions, as (OSError, TimeoutError), not {options.retry_for}"
        )


def _decorated(function: Any, options: StepOptions) -> Any:
    if not inspect.isroutine(function) or isinstance(function, (staticmethod, classmethod)):
        raise SettingError(f"step() is for functions, and goes below all other decorators; {function!r:.100} is none")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise SettingError(f"step(): {function.__qualname__} is a generator, whose value cannot be kept; return a list")
    if isinstance(options.key, str):
        check_named("step(key=...)", options.key, inspect.signature(function))
    call = _called(function, options)
    if inspect.iscoroutinefunction(function):
        _mark_coroutine_function(call)
    setattr(call, OPTIONS, options)
    return call


def _called(function: Any, options: StepOptions) -> Any:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        steps = steps_here()
        if steps is None:
            return function(*args, **kwargs)
        name = options.name or str(function.__qualname__)
        key = _label(name, function, options.key, args, kwargs)
        return perform.run(steps, name, function, args, kwargs, options, key)

    return call


def _mark_coroutine_function(call: Any) -> None:
    """It is none, so that a step which nobody awaits is noticed."""
    if sys.version_info >= (3, 12):
        inspect.markcoroutinefunction(call)
    else:
        call._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]  # for asyncio's own question


def _label(name: str, function: Any, key: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """What tells this call from others, as it tells an item of a loop from others."""
    if key is None:
        return None
    try:
        value = found(function, f"the step {name}", key, args, kwargs)
    except BadTask as error:
        raise BadStep(str(error)) from error
    try:
        return canonical.label(value)
    except TypeError as error:
        raise BadStep(f"the step {name}: what step(key={key!r}) finds is no key: {error}") from error
