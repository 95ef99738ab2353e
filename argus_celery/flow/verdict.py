"""Verdict: what becomes of a wait, decided once and kept as the value of its step, so that every later run reads the
same.

A told event is a fact of its project. Whether it came in time is judged by the instants in the store alone: it does not
matter when a worker was free to look.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from argus_celery.flow.complete import lost
from argus_celery.flow.outage import wait_out
from argus_celery.flow.runtime import Runtime
from argus_celery.records import Claim
from argus_celery.store import events, leases, steps, waits

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

_PENDING, _TOLD, _OVER = b"p", b"t", b"o"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the step of a wait says."""

    decided: bool = False
    payload: bytes | None = None
    """Of the event that has come; None: the time is over."""
    until: int | None = None
    """Of one that is not decided."""


def pending(until: int | None) -> bytes:
    return _PENDING + (b"" if until is None else b"%d" % until)


def told(payload: bytes) -> bytes:
    return _TOLD + payload


OVER = _OVER


def read(value: bytes) -> Verdict:
    kind, rest = value[:1], value[1:]
    if kind == _PENDING:
        return Verdict(until=int(rest) if rest else None)
    return Verdict(decided=True, payload=rest if kind == _TOLD else None)


def look(rt: Runtime, claim: Claim, event: str) -> bytes | None:
    """The payload of the event, if the project was told. Waits while the store is away."""
    found = wait_out(lambda: rt.store.statement(lambda c: events.read(c, claim.project_id, event)))
    return None if found is None else found.payload


def decide(
    rt: Runtime, claim: Claim, step: str, event: str, until: int | None, give_up: Callable[[], bool] | None = None
) -> Verdict:
    """Whether the event came in time, kept under the claim; not decided if it may come yet.

    ``until`` is an instant of the store's clock: 0 is now. Waits while the store is away. Raises ``LeaseLost``, with
    nothing written, if the claim is not held any more.
    """
    return wait_out(lambda: rt.store.transaction(lambda c: _decide(rt, c, claim, step, event, until)), give_up)


def _decide(rt: Runtime, connection: Connection, claim: Claim, step: str, event: str, until: int | None) -> Verdict:
    sent = events.lock(rt.store, connection, claim.project_id, event)
    if not leases.lock_held(rt.store, connection, claim.holder, [(claim.task_id, claim.token)]):
        raise lost(claim)
    now = rt.store.read_now(connection)
    if sent is not None and (not until or sent.sent_at <= until):
        value = told(sent.payload)
    elif until is not None and until <= now:
        value = OVER
    else:
        return Verdict(until=until)
    steps.put(connection, claim, step, value, now)
    waits.forget(connection, [claim.task_id])
    return read(value)
