"""The limits of a task as its row keeps them, for the day that it is put back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple

from argus_celery.records import Bound


def dump(limits: Sequence[Bound]) -> str | None:
    return json.dumps([astuple(one) for one in limits]) if limits else None


def load(text: str | None) -> tuple[Bound, ...]:
    return tuple(Bound(*one) for one in json.loads(text)) if text else ()
