"""``pydantic=True`` with a coroutine: Celery dumps the model that a body returns, but sees only the coroutine."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any

from celery import Celery
from celery.app.base import pydantic_wrapper


def dumping(app: Celery, run: Any) -> Callable[[Any], Any]:
    """What Celery does to the value of this body: the wrapper once more, around a function that only returns it."""
    wrapper = _wrapper_of(run)
    if wrapper is None:
        return _same
    body = inspect.unwrap(wrapper)

    def returned(value: Any) -> Any:
        return value

    returned.__annotations__ = {"return": _returns(body)}
    options = inspect.getclosurevars(wrapper).nonlocals.get("dump_kwargs")
    dump: Callable[[Any], Any] = pydantic_wrapper(app, returned, body.__name__, dump_kwargs=options)
    return dump


def _same(value: Any) -> Any:
    return value


def _wrapper_of(run: Any) -> Any:
    """Celery's wrapper below what may have been put around it."""
    function = getattr(run, "__func__", run)
    while function is not None and not hasattr(function, "dump_arguments"):
        function = getattr(function, "__wrapped__", None)
    return function


def _returns(body: Any) -> Any:
    try:
        return typing.get_type_hints(body).get("return")
    except (NameError, AttributeError, TypeError):
        return inspect.signature(body).return_annotation
