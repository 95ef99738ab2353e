"""Naming: what the store calls a step, from what is around it and what the user has given.

    fetch   fetch#2   outer/fetch   get("a")   each["a"]   each#2["a"]#3/fetch   sleep   wait approved

What a user gives stands in quotes where it could be taken for more than a name, ``"a/b"``. So no two steps share a
name, unless they have the same place, kind, name, key and number.
"""

from __future__ import annotations

import hashlib
import re

from argus_celery.errors import BadStep
from argus_celery.store.names import LONGEST, fault_of

_MORE_THAN_A_NAME = re.compile(r'[/#()\[\]"…]|\A(sleep|wait)( |\Z)')
_KEPT = 200
"""Letters that are kept of a path that is too long."""
SLEEP = "sleep"
"""The name of a sleep that was given none."""


def step(name: str, key: str | None = None) -> str:
    """Of a step, or a loop. ``key``: the label of what tells it from others of its name (``canonical``)."""
    return _quoted(name) if key is None else f"{_quoted(name)}({key})"


def item(loop: str, label: str) -> str:
    return f"{loop}[{label}]"


def sleep(name: str) -> str:
    return SLEEP if name == SLEEP else f"{SLEEP} {_quoted(name)}"


def wait(event: str) -> str:
    return f"wait {_quoted(event)}"


def inside(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


def numbered(path: str, number: int) -> str:
    return path if number == 1 else f"{path}#{number}"


def row(path: str) -> str:
    """As the store has it: a path that is too long ends with its digest."""
    if len(path) <= LONGEST:
        return path
    return f"{path[:_KEPT]}…{hashlib.sha256(path.encode(errors='surrogatepass')).hexdigest()[:32]}"


def _quoted(given: str) -> str:
    fault = fault_of(given)
    if fault is not None:
        raise BadStep(f"the name of a step {fault}")
    if not _MORE_THAN_A_NAME.search(given):
        return given
    return in_quotes(given)


def in_quotes(given: str) -> str:
    return '"' + given.replace("\\", "\\\\").replace('"', '\\"') + '"'
