"""``@step``: a function whose calls inside a running durable task are steps of it."""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from argus_celery.config import did_you_mean
from argus_celery.errors import BadStep, BadTask, SettingError
from argus_celery.flow import perform
from argus_celery.flow.trying import OPTIONS, StepOptions
from argus_celery.hooks.keyed import check_key, check_named, value_of
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
    ``name[key]``. ``retries`` more calls if it raises one of ``retry_for``, after ``backoff`` seconds, doubling up to
    ``backoff_max``. ``timeout``: seconds for each call; of what is no coroutine function, only in the main thread of a
    process (the pools prefork and solo). Raises ``SettingError`` for an option that cannot work.
    """
    if unknown:
        known = [field.name for field in fields(StepOptions)]
        raise SettingError(f"step() has no option {next(iter(unknown))}.{did_you_mean(next(iter(unknown)), known)}")
    errors = (retry_for,) if isinstance(retry_for, type) else tuple(retry_for)
    options = StepOptions(name, key, retries, backoff, backoff_max, errors, timeout)
    _check(options)
    if target is None:
        return lambda later: _decorated(later, options)
    return _decorated(target, options)


def _check(options: StepOptions) -> None:
    if options.name is not None and (fault := fault_of(options.name)) is not None:
        raise SettingError(f"step(name=...) {fault}")
    if options.key is not None:
        check_key("step(key=...)", options.key)
    if isinstance(options.retries, bool) or not isinstance(options.retries, int) or options.retries < 0:
        raise SettingError(f"step(retries=...) must be a whole number of at least 0, not {options.retries!r}")
    for name in ("backoff", "backoff_max", "timeout"):
        value = getattr(options, name)
        if value is not None and not _is_duration(value, least=0 if name == "backoff" else 1e-3):
            raise SettingError(f"step({name}=...) must be a number of seconds, not {value!r}")
    if not options.retry_for or not all(
        isinstance(one, type) and issubclass(one, Exception) for one in options.retry_for
    ):
        raise SettingError(
            f"step(retry_for=...) must be exceptions, as (OSError, TimeoutError), not {options.retry_for}"
        )


def _is_duration(value: object, least: float) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and math.isfinite(value) and value >= least  # type: ignore[arg-type, operator]


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
        return perform.run(steps, _name(function, options, args, kwargs), function, args, kwargs, options)

    return call


def _mark_coroutine_function(call: Any) -> None:
    """It is none, so that a step which nobody awaits is noticed."""
    if sys.version_info >= (3, 12):
        inspect.markcoroutinefunction(call)
    else:
        call._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]  # for asyncio's own question


def _name(function: Any, options: StepOptions, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    name = options.name or str(function.__qualname__)
    if options.key is None:
        return name
    try:
        value = value_of(function, f"the step {name}", options.key, args, kwargs)
    except BadTask as error:
        raise BadStep(str(error)) from error
    return f"{name}[{value}]"
