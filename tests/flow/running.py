"""The steps of a run, without a body's worker: what a task does is called here."""

from __future__ import annotations

import json
from threading import Event
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from argus_celery.flow.dispatch import dispatch
from argus_celery.records import Claim
from argus_celery.run import Run, in_hand
from argus_celery.store.schema import steps

if TYPE_CHECKING:
    from tests.flow.conftest import FlowBench


class JsonRun(Run):
    def encode(self, value: Any) -> bytes:
        return json.dumps(value).encode()

    def decode(self, data: bytes) -> Any:
        return json.loads(data)


class Log(list[str]):
    """What the functions of steps have done."""

    def __init__(self) -> None:
        super().__init__()
        self.failing: set[str] = set()

    def do(self, what: str, gives: Any = None) -> Any:
        self.append(what)
        if what in self.failing:
            raise ValueError(what)
        return what if gives is None else gives

    def fail(self, what: str) -> None:
        self.append(what)
        raise ValueError(what)


def names(bench: FlowBench) -> list[str]:
    return sorted(bench.store.statement(lambda c: list(c.execute(sa.select(steps.c.name)).scalars())))


def begin(bench: FlowBench, claim: Claim) -> JsonRun:
    """From here on ``current`` is this claim's."""
    run = JsonRun(bench.rt, claim, Event(), in_body=True)
    in_hand.set(run)
    return run


def taken_over(bench: FlowBench, claim: Claim, holder: str = "w2") -> Claim:
    """The lease lapses, and another worker has the task."""
    bench.pass_time(7)
    dispatch(bench.rt)
    granted = bench.claim(holder, claim.task_id)
    assert granted is not None
    return granted
