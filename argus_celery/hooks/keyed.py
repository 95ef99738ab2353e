"""What the arguments of a call decide: of which kind only one may live, and whose slots it takes.

A key is read from the arguments as the function's own signature binds them, so that it does not matter how they were
passed. Values are compared as text.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from argus_celery.config import did_you_mean
from argus_celery.errors import BadTask, SettingError
from argus_celery.flow.checks import check_name

Key = str | Callable[..., Any]

_PATH = re.compile(r"(args|kwargs)\.(\w+)\Z", re.ASCII)
_PLAIN = (str, int, float, type(None))


def check_key(where: str, key: object) -> None:
    """Raises ``SettingError`` for what is no key, as soon as it is written down."""
    if not callable(key) and not (isinstance(key, str) and _PATH.match(key)):
        raise SettingError(
            f'{where} must be "args.NAME", "args.0", "kwargs.NAME" or a function of the arguments, not {key!r}'
        )


def check_named(where: str, key: str, signature: inspect.Signature) -> None:
    """Raises ``SettingError`` if the signature cannot have what the key names."""
    parameters = signature.parameters.values()
    name = key.partition(".")[2]
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return
    if name.isdigit():
        known = int(name) < len(parameters) or any(one.kind is one.VAR_POSITIONAL for one in parameters)
    else:
        known = name in signature.parameters
    if not known:
        raise SettingError(
            f"{where}={key!r}: there is no such argument.{did_you_mean(name, list(signature.parameters))}"
        )


def value_of(function: Callable[..., Any], name: str, key: Key, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """What the key finds in a call. Raises ``BadTask`` if it finds nothing, or what is no plain value."""
    value = found(function, name, key, args, kwargs)
    if isinstance(value, (dict, list, tuple, set, frozenset, bytes)) or value is inspect.Parameter.empty:
        raise BadTask(f"{name}: {key!r} finds {value!r:.100}; a key is a plain value, such as a number or a text")
    return str(value)


def found(function: Callable[..., Any], name: str, key: Key, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The same, whatever it is."""
    return key(*args, **kwargs) if callable(key) else _found(_bound(function, name, args, kwargs), name, key)


def _found(bound: Mapping[str, Any], name: str, key: str) -> Any:
    path = _PATH.match(key)
    wanted = path[2] if path else key
    if wanted.isdigit() and int(wanted) < len(bound):
        return list(bound.values())[int(wanted)]
    if wanted not in bound:
        raise BadTask(f"{name}: this call has no argument for {key!r}.{did_you_mean(wanted, list(bound))}")
    return bound[wanted]


def _bound(function: Callable[..., Any], name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by the names of the parameters, defaults included, ``*args`` and ``**kwargs`` spread out."""
    signature = inspect.signature(function)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise BadTask(f"{name} cannot be called so: {error}") from error
    bound.apply_defaults()
    spread: dict[str, Any] = {}
    for parameter, value in bound.arguments.items():
        kind = signature.parameters[parameter].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            spread |= value
        elif kind is inspect.Parameter.VAR_POSITIONAL:
            spread |= {f"*{parameter}{number}": one for number, one in enumerate(value)}
        else:
            spread[parameter] = value
    return spread


def unique_of(task: Any, name: str, unique: Key | bool | None, given: Any, body: Any) -> str | None:
    """The mark of its kind; None if others like it may live beside it. ``given``: ``argus_unique`` of the call."""
    args, kwargs, embed = body
    wanted = unique if given is None else given
    if wanted is None or wanted is False:
        return None
    if any(embed.get(after) for after in ("callbacks", "chain", "chord")):
        raise BadTask(
            f"{name} is unique, and what stands behind it here (link, chain or chord) would be lost whenever another"
            " of its kind lives: call it alone, or with argus_unique=False"
        )
    if given is not None and given is not True:
        check_name(f"argus_unique of {name}", given)
        return _mark(name, given)
    if wanted is True:
        bound = {"args": list(args), **kwargs} if task is None else _bound(task.run, name, args, kwargs)
        return _mark(name, json.dumps(bound, sort_keys=True, default=repr))
    return _mark(name, value_of(task.run, name, wanted, args, kwargs))


def _mark(name: str, text: str) -> str:
    # A value may be half of a surrogate pair, which UTF-8 has no bytes for.
    return hashlib.sha256(f"{name}\0{text}".encode(errors="surrogatepass")).hexdigest()
