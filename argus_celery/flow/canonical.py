"""What an item of ``each``, or a step with a key, is known by: a value in one form, whatever process writes it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Set
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

_SHORT = 64
_DIGEST = 32
_AS_TEXT = (datetime, date, time, timedelta, Decimal, UUID, PurePath)


def label(value: Any) -> str:
    """Its JSON in at most 64 characters: of what is longer the beginning, and a digest.

    Raises ``TypeError`` for what has no value that another process would find again.
    """
    text = json.dumps(_plain(value), sort_keys=True, separators=(",", ":"))
    if len(text) <= _SHORT:
        return text
    # JSON has no "…" of its own.
    return f"{text[: _SHORT - _DIGEST - 1]}…{hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]}"


def _plain(value: Any) -> Any:
    """Lists and tuples are alike, as they are once they have been in a message."""
    if isinstance(value, Enum):
        return _tagged(value, _plain(value.value))
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, Mapping):
        return {"": sorted(([_plain(key), _plain(one)] for key, one in value.items()), key=json.dumps)}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, Set):
        return _tagged(value, sorted((_plain(one) for one in value), key=json.dumps), "set")
    if isinstance(value, (bytes, bytearray)):
        return _tagged(value, value.hex(), "bytes")
    if isinstance(value, _AS_TEXT):
        return _tagged(value, str(value))
    raise TypeError(f"{type(value).__name__} has no value that another process would find again")


def _tagged(value: Any, content: Any, tag: str | None = None) -> dict[str, Any]:
    return {tag or type(value).__name__: content}
