"""Given: what a call was given, by which the repeat of a call that failed is told from a call for another thing."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

FEW = 200
"""Values that are copied at each call; arguments that hold more are looked at only when their call has failed."""
_DEEPEST = 8
_CONNECTION = ("cursor", "commit", "rollback")
"""What a connection of Python's database API has."""
_SEQUENCES = (list, tuple, deque)
_HELD = (*_SEQUENCES, dict, set, bytearray, partial, MethodType, FunctionType)


class TooMany(Exception):
    """There are more values than were to be copied."""


class Given:
    """What one call was given: as it was then, and as it is when the call has failed. Either may be met again."""

    def __init__(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._parts = (function, args, kwargs)
        self._states = [state] if (state := _state(self._parts, FEW)) is not None else []

    def failed(self) -> None:
        """Lists and dicts of it may change from here on."""
        state = _state(self._parts, None)
        self._states += [] if state is None else [state]

    def is_repeated_by(self, other: Given) -> bool:
        """May both be for the same thing?"""
        now = other._states[0] if other._states else _state(other._parts, None)
        return any(_are_alike(before, now) for before in self._states)


def _state(parts: tuple[Any, ...], most: int | None) -> Any:
    """None if it could not be copied: another thread is changing it, or it holds more than that."""
    function, args, kwargs = parts
    copy = _Copy(most)
    try:
        return copy.of(function), copy.of(list(args)), copy.of(dict(kwargs))
    except Exception:
        return None


class _Copy:
    """Of containers, of what a function bears of its own, and of nothing else."""

    def __init__(self, most: int | None) -> None:
        self._left = most
        self._seen: dict[int, tuple[Any, Any]] = {}

    def of(self, value: Any, depth: int = 0) -> Any:
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise TooMany
        if depth > _DEEPEST or not isinstance(value, _HELD):
            return value
        if id(value) not in self._seen:
            self._seen[id(value)] = value, value  # what holds itself
            self._seen[id(value)] = value, self._copied(value, depth + 1)
        return self._seen[id(value)][1]

    def _copied(self, value: Any, depth: int) -> Any:
        if isinstance(value, _SEQUENCES):
            return [type(value), *(self.of(one, depth) for one in value)]
        if isinstance(value, dict):
            return {key: self.of(one, depth) for key, one in value.items()}
        if isinstance(value, (set, bytearray)):
            return value.copy()
        if isinstance(value, partial):
            return [self.of(value.func, depth), self.of(value.args, depth), self.of(value.keywords, depth)]
        if isinstance(value, MethodType):
            return [self.of(value.__func__, depth), value.__self__]
        defaults = (value.__defaults__ or (), value.__kwdefaults__ or {})
        around = [self._cell(cell, depth) for cell in value.__closure__ or ()]
        return [value.__code__, self.of(defaults, depth), *around]

    def _cell(self, cell: Any, depth: int) -> Any:
        """A variable around the function is what it is now. A list there that has grown is the same list."""
        try:
            content = cell.cell_contents
        except ValueError:
            return None  # not bound yet
        return self.of(content, depth) if isinstance(content, (FunctionType, MethodType, partial)) else content


_VALUE, _NOTHING, _OPENED = "a value", "nothing", "a connection"
"""What two that are alike say of the thing."""


def _are_alike(before: Any, now: Any) -> bool:
    """Values are compared, in containers and closures too; anything else is alike if it is the same object.

    A connection to a database may be another: each try opens its own. Where it is all there is, it has to be one of
    SQLAlchemy's, and of the same engine.
    """
    found = {_likeness(*pair) for pair in _leaves(before, now)}
    return None not in found and (_VALUE in found or _OPENED not in found)


def _leaves(before: Any, now: Any) -> Iterator[tuple[Any, Any]]:
    """The values that stand in the same places; where the two differ in shape, themselves."""
    pairs, seen = [(before, now)], set()
    while pairs:
        before, now = pairs.pop()
        if (id(before), id(now)) in seen:
            continue  # it is held in several places, or by itself
        seen.add((id(before), id(now)))
        same_kind = before is not now and type(before) is type(now)
        if same_kind and isinstance(before, (tuple, list)) and len(before) == len(now):
            pairs += zip(before, now, strict=True)
        elif same_kind and isinstance(before, dict) and before.keys() == now.keys():
            pairs += [(one, now[key]) for key, one in before.items()]
        else:
            yield before, now


def _likeness(before: Any, now: Any) -> str | None:
    kind: Any = type(before)
    says = _NOTHING if kind in (bool, type, CodeType) or kind.__eq__ is object.__eq__ else _VALUE
    if before is now:
        return says
    if kind is not type(now):
        return None
    if any(base.__module__.startswith("sqlalchemy.") for base in kind.__mro__) and hasattr(kind, "execute"):
        return _NOTHING if _engine(before) is _engine(now) else None
    try:
        if before == now:
            return says
    except Exception:  # it is the user's: an array has no truth of its own
        return None
    return _OPENED if all(hasattr(kind, name) for name in _CONNECTION) else None


def _engine(value: Any) -> Any:
    """Of a connection, or a session."""
    bind = getattr(value, "bind", None)
    return getattr(value if bind is None else bind, "engine", bind)
