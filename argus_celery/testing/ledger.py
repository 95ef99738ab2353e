"""The ledger: what bodies under test have done to the world outside, in a file that a kill leaves whole."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

__tracebackhide__ = True
Effect = tuple[Any, ...]


class BadEffect(TypeError):
    """An effect is not what the ledger can keep."""


class Ledger:
    """Effects, in the order in which they happened. Any process may append to it.

    ``write("mail", to)`` happens each time it is called. With ``key=`` it is what a receiver does that knows keys (an
    ``Idempotency-Key``): the second with the same key changes nothing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.after: Callable[[Effect], None] = lambda effect: None
        """Called when an effect has happened."""

    def write(self, *effect: Any, key: Any = None) -> None:
        """Append an effect: a name and what else tells it from others, as JSON can carry it.

        Raises ``BadEffect`` for anything else.
        """
        line = _line(effect, key)
        target = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(target, line.encode())  # one write, which others' do not fall into
        finally:
            os.close(target)
        self.after(effect)

    @property
    def effects(self) -> list[Effect]:
        """What has happened; of those with the same name and key, the first."""
        found: list[Effect] = []
        known: set[str] = set()
        for effect, key in self._lines():
            mark = json.dumps([effect[:1], key], sort_keys=True)
            if key is None or mark not in known:
                found.append(tuple(effect))
            known.add(mark)
        return found

    def count(self, *beginning: Any) -> int:
        """How many effects begin so."""
        return sum(effect[: len(beginning)] == beginning for effect in self.effects)

    def clear(self) -> None:
        self.path.unlink(missing_ok=True)

    def _lines(self) -> list[Any]:
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text().splitlines()]


def _line(effect: Effect, key: Any) -> str:
    try:
        return json.dumps([effect, key]) + "\n"
    except (TypeError, ValueError) as error:
        shown = ", ".join(map(repr, effect)) + ("" if key is None else f", key={key!r}")
        raise BadEffect(
            f"ledger.write({shown:.200}): an effect is what JSON holds, to be compared over processes ({error}): write"
            " what tells it from others, such as an id"
        ) from None
