"""Given: what a call was given, by which the repeat of a call that failed is told from a call for another thing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import FunctionType, MethodType
from typing import Any

_DEEPEST = 8
_CLOSES = ("close", "aclose", "__exit__", "__aexit__")


def given(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The arguments as they are now, with what the function bears: lists and dicts may change before the next call."""
    return _of_now(function), _of_now(list(args)), _of_now(dict(kwargs))


def are_alike(before: Any, now: Any) -> bool:
    """May both be given for the same thing?

    Values are compared, in containers and closures too. Of two connections, sessions, files and the like, which each
    try opens anew, nothing tells what they are for. Anything else is alike if it is the same object.
    """
    if before is now:
        return True
    if type(before) is not type(now):
        return False
    if isinstance(before, (tuple, list)):
        return len(before) == len(now) and all(map(are_alike, before, now))
    if isinstance(before, dict):
        return before.keys() == now.keys() and all(are_alike(one, now[key]) for key, one in before.items())
    try:
        return bool(before == now) or _is_opened(before)
    except Exception:  # it is the user's: an array has no truth of its own
        return False


def _is_opened(value: Any) -> bool:
    """Made anew for each try, and compared as an object only."""
    kind: Any = type(value)
    return kind.__eq__ is object.__eq__ and any(hasattr(kind, name) for name in _CLOSES)


def _of_now(value: Any, depth: int = 0) -> Any:
    if depth > _DEEPEST:
        return value
    if type(value) in (list, tuple):
        return [type(value), *(_of_now(one, depth + 1) for one in value)]
    if type(value) is dict:
        return {key: _of_now(one, depth + 1) for key, one in value.items()}
    if type(value) in (set, bytearray):
        return value.copy()
    if isinstance(value, partial):
        return tuple(_of_now(part, depth + 1) for part in (value.func, value.args, value.keywords))
    if isinstance(value, MethodType):
        return _of_now(value.__func__, depth + 1), value.__self__
    if isinstance(value, FunctionType):
        defaults = (value.__defaults__ or (), value.__kwdefaults__ or {})
        return (
            value.__code__,
            _of_now(defaults, depth + 1),
            *(_in_cell(cell, depth) for cell in value.__closure__ or ()),
        )
    return value


def _in_cell(cell: Any, depth: int) -> Any:
    """A variable around the function is what it is now. A list there that has grown is the same list."""
    try:
        content = cell.cell_contents
    except ValueError:
        return None  # not bound yet
    return _of_now(content, depth + 1) if isinstance(content, (FunctionType, MethodType, partial)) else content
