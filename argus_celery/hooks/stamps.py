"""Revoked stamps: kept in the store, so that a worker that was started later refuses their tasks all the same.

Celery judges by its memory (``state.revoked_stamps``), which each worker fills from the store at its boot and at each
sweep. A task in hand that bears a stamp which comes in so is stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from celery.worker import state
from kombu.utils.functional import maybe_list
from kombu.utils.json import dumps, loads

from argus_celery.flow.revoke import revoke_stamps
from argus_celery.flow.runtime import Runtime
from argus_celery.hooks.request import DurableRequest
from argus_celery.store import revoked

Stamps = dict[str, list[Any]]


def record(rt: Runtime, headers: Any) -> Stamps:
    """Keep these; returns them by header. A list is what the command line gives: ``key=value``."""
    if not isinstance(headers, Mapping):
        headers = dict(one.split("=", 1) for one in headers)
    stamps = {header: list(maybe_list(values)) for header, values in headers.items()}
    revoke_stamps(rt, {header: [dumps(value) for value in values] for header, values in stamps.items()})
    return stamps


def refresh(rt: Runtime, stop: Callable[[Stamps], object]) -> None:
    """Learn what the store has and this process does not know yet; ``stop`` is called with it, if there is any."""
    news: Stamps = {}
    for header, text in rt.store.statement(revoked.stamps):
        known, value = state.revoked_stamps.get(header) or [], loads(text)
        if value not in maybe_list(known):
            state.revoked_stamps[header] = [*maybe_list(known), value]
            news.setdefault(header, []).append(value)
    if news:
        stop(news)


def bears(request: DurableRequest, stamps: Stamps) -> bool:
    """Does the task of this request bear one of these?"""
    return any(
        value in stamps.get(header, ()) for header, own in request.stamps.items() for value in maybe_list(own) or ()
    )
