"""Wait: what a body calls to wait, by its run. A short wait is sat out here; a longer one ends the run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any

from argus_celery.errors import BadStep, LeaseLost, NoClaim, Suspended, WaitTimeout
from argus_celery.flow import naming, timers, verdict
from argus_celery.flow.awaited import Awaited
from argus_celery.flow.checks import check_event
from argus_celery.flow.off_loop import off_loop
from argus_celery.flow.outage import wait_out
from argus_celery.flow.scope import Call
from argus_celery.flow.step import Steps
from argus_celery.flow.suspend import Wait

SHORT_MS = 1000
"""A wait that is shorter does not end the run."""
LOOK = 0.05
"""Seconds between two looks for an event that is waited for so briefly."""

RAISES: Any = object()
"""As a default: no default."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Of so many milliseconds."""

    ms: int


Plan = Generator[Callable[[], Any] | Pause, Any, Any]
"""A wait, piece by piece: each yields what blocks, and is sent its answer."""


class Waits:
    """The waits of one run."""

    def __init__(self, steps: Steps, is_open: Callable[[], bool]) -> None:
        self.steps, self._is_open = steps, is_open
        self.reached: Wait | None = None
        """What the run ends for; of two that the body reaches side by side the first."""

    def check(self) -> None:
        """Raise ``Suspended`` if the run has reached a wait: nothing else of it is to begin."""
        if self.reached is not None:
            raise Suspended(f"task {self.steps.claim.task_id} waits, and goes on in a later run: let this pass")

    # --- sleeping --------------------------------------------------------------------------------------------------

    def sleep(self, ms: int, name: str) -> Any:
        step = self._take(naming.sleep(name), "current.sleep()")
        return self._called("current.sleep()", self._sleep(step, ms), ends_run=ms >= SHORT_MS)

    def _sleep(self, step: str, ms: int) -> Plan:
        if (yield partial(self.steps.knows, step)):
            return  # else this run would not have been granted yet
        if ms < SHORT_MS:
            yield from self._sit_out(ms)
        else:
            yield from self._suspend(Wait(step, delay_ms=ms))

    def sleep_until(self, instant: int, name: str) -> Any:
        """``instant`` is milliseconds of the store's clock."""
        step = self._take(naming.sleep(name), "current.sleep()")
        return self._called("current.sleep_until()", self._sleep_until(step, instant), ends_run=True)

    def _sleep_until(self, step: str, instant: int) -> Plan:
        if (yield partial(self.steps.knows, step)):
            return
        left = instant - (yield self._now)
        if left < SHORT_MS:
            yield from self._sit_out(left)
        else:
            yield from self._suspend(Wait(step, until=instant))

    def _now(self) -> int:
        store = self.steps.rt.store
        return wait_out(lambda: store.statement(store.read_now))

    def _sit_out(self, ms: int) -> Plan:
        self.check()
        if ms > 0:
            yield Pause(ms)
        if self.steps.lost.is_set():
            raise LeaseLost(f"task {self.steps.claim.task_id}: the lease was lost during a wait")

    # --- events ----------------------------------------------------------------------------------------------------

    def wait_for(self, event: str, timeout_ms: int | None, default: Any) -> Any:
        check_event(event)
        step = self._take(naming.wait(event), "current.wait_for()")
        is_brief = timeout_ms is not None and timeout_ms < SHORT_MS
        plan = self._wait_for(step, event, timeout_ms, default, is_brief)
        return self._called(f"current.wait_for({event!r})", plan, ends_run=not is_brief)

    def _wait_for(self, step: str, event: str, timeout_ms: int | None, default: Any, is_brief: bool) -> Plan:
        if (yield partial(self.steps.knows, step)):
            return (yield from self._resumed(step, event, default))
        payload = yield partial(self._look, event)
        if payload is None and is_brief:
            return (yield from self._briefly(step, event, timeout_ms or 0, default))
        if payload is None:
            yield from self._suspend(Wait(step, event, delay_ms=timeout_ms))
        return self.steps.codec.decode(payload)

    def _resumed(self, step: str, event: str, default: Any) -> Plan:
        noted = yield partial(self.steps.raw, step)
        assert noted is not None
        found = verdict.read(noted)
        if not found.decided:
            found = yield partial(self._decide, step, event, found.until)
        if not found.decided:
            yield from self._suspend(Wait(step, event, until=found.until))
        return self._answer(event, found, default)

    def _briefly(self, step: str, event: str, timeout_ms: int, default: Any) -> Plan:
        ends = time.monotonic() + timeout_ms / 1000
        while (left := ends - time.monotonic()) > 0 and (yield partial(self._look, event)) is None:
            yield from self._sit_out(round(min(left, LOOK) * 1000))
        return self._answer(event, (yield partial(self._decide, step, event, 0)), default)

    def _look(self, event: str) -> bytes | None:
        return verdict.look(self.steps.rt, self.steps.claim, event)

    def _decide(self, step: str, event: str, until: int | None) -> verdict.Verdict:
        steps = self.steps
        return verdict.decide(steps.rt, steps.claim, step, event, until, steps.lost.is_set)

    def _answer(self, event: str, found: verdict.Verdict, default: Any) -> Any:
        if found.payload is not None:
            return self.steps.codec.decode(found.payload)
        if default is not RAISES:
            return default
        raise WaitTimeout(f"task {self.steps.claim.task_id}: the event {event!r} did not come in time")

    # --- the end of the run ----------------------------------------------------------------------------------------

    def _take(self, name: str, call: str) -> str:
        """The name of the step that notes the wait."""
        here, task = self.steps.names.here, self.steps.claim.task_id
        if here.connection is not None:
            raise BadStep(f"task {task}: {call} inside a transaction would keep it open, or lose it: wait before it")
        if here.in_step:
            raise BadStep(
                f"task {task}: {call} inside a step: a later run does not come back into one, so wait outside"
            )
        if not self._is_open():
            raise NoClaim(f"task {task}: {call} can only be called while the body runs")
        return naming.row(self.steps.names.take(name, Call(here.path, ("argus_celery", call, 0))))

    def _suspend(self, wait: Wait) -> Plan:
        self.check()
        yield self.steps.flush
        if self.reached is None:
            self.reached = wait
        self.check()

    # --- how a wait is called --------------------------------------------------------------------------------------

    def _called(self, call: str, plan: Plan, *, ends_run: bool) -> Any:
        """In a coroutine something to await, which looks at the store in a thread; else the call's answer."""
        if not _is_in_coroutine():
            return self._at_once(plan)
        return Awaited(call, self.steps.unawaited, lambda: self._awaited(call, plan, ends_run))

    def _at_once(self, plan: Plan) -> Any:
        answer = None
        while True:
            try:
                blocking = plan.send(answer)
            except StopIteration as end:
                return end.value
            # A run that has lost its lease does not wait for the end of a pause.
            answer = self.steps.lost.wait(blocking.ms / 1000) if isinstance(blocking, Pause) else blocking()

    async def _awaited(self, call: str, plan: Plan, ends_run: bool) -> Any:
        """Who is cancelled meanwhile has not waited: the run goes on."""
        if ends_run and timers.under_way():
            raise BadStep(
                f"task {self.steps.claim.task_id}: {call} inside asyncio.timeout() or asyncio.wait_for(): such a wait"
                " ends the run, and with it what asyncio has timed. Wait outside; for an event there is"
                " current.wait_for(…, timeout=…)"
            )
        answer = None
        while True:
            try:
                blocking = plan.send(answer)
            except StopIteration as end:
                return end.value
            if isinstance(blocking, Pause):
                await asyncio.sleep(blocking.ms / 1000)
            else:
                answer = await off_loop(blocking)


def nap(ms: int) -> Any:
    """A short sleep without a run: in a coroutine to be awaited."""
    if _is_in_coroutine():
        return asyncio.sleep(ms / 1000)
    return time.sleep(ms / 1000)


def _is_in_coroutine() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
