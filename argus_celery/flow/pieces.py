"""Pieces: what is too much for one statement or transaction, a part at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from argus_celery.store.edges import AT_ONCE

T = TypeVar("T")


def pieces(items: Iterable[T], size: int = AT_ONCE) -> Iterator[list[T]]:
    """The items in their order, up to ``size`` at a time; read no further than the pieces that were asked for."""
    remaining = iter(items)
    while some := list(islice(remaining, size)):
        yield some
