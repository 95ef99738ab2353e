"""Wait: what a body calls to wait, by its run. A short wait is sat out here; a longer one ends the run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, NoReturn

from argus_celery.errors import BadStep, LeaseLost, NoClaim, Suspended, WaitTimeout
from argus_celery.flow import scope, verdict
from argus_celery.flow.checks import check_event
from argus_celery.flow.outage import wait_out
from argus_celery.flow.step import Steps
from argus_celery.flow.suspend import Wait

SHORT_MS = 1000
"""A wait that is shorter does not end the run."""
LOOK = 0.05
"""Seconds between two looks for an event that is waited for so briefly."""

RAISES: Any = object()
"""As a default: no default."""


class Waits:
    """The waits of one run."""

    def __init__(self, steps: Steps, is_open: Callable[[], bool]) -> None:
        self.steps, self._is_open = steps, is_open
        self.reached: Wait | None = None
        """What the run ends for; of two that the body reaches side by side the first."""
        self.unawaited = 0
        """How many a coroutine has asked for, and not awaited yet."""

    # --- sleeping --------------------------------------------------------------------------------------------------

    def sleep(self, ms: int, name: str) -> None:
        step = self._take(name, "current.sleep()")
        if self.steps.knows(step):
            return  # else this run would not have been granted yet
        if ms < SHORT_MS:
            self._sit_out(ms)
        else:
            self._suspend(Wait(step, delay_ms=ms))

    def sleep_until(self, instant: int, name: str) -> None:
        """``instant`` is milliseconds of the store's clock."""
        step = self._take(name, "current.sleep()")
        if self.steps.knows(step):
            return
        left = instant - wait_out(lambda: self.steps.rt.store.statement(self.steps.rt.store.read_now))
        if left < SHORT_MS:
            self._sit_out(left)
        else:
            self._suspend(Wait(step, until=instant))

    def _sit_out(self, ms: int) -> None:
        if ms > 0 and self.steps.lost.wait(ms / 1000):
            raise LeaseLost(f"task {self.steps.claim.task_id}: the lease was lost during a wait")

    # --- events ----------------------------------------------------------------------------------------------------

    def wait_for(self, event: str, timeout_ms: int | None, default: Any) -> Any:
        check_event(event)
        step = self._take(scope.fitting(f"wait {event}"), "current.wait_for()")
        if self.steps.knows(step):
            return self._resumed(step, event, default)
        payload = self._look(event)
        if payload is None and timeout_ms is not None and timeout_ms < SHORT_MS:
            return self._briefly(step, event, timeout_ms, default)
        if payload is None:
            self._suspend(Wait(step, event, delay_ms=timeout_ms))
        return self.steps.codec.decode(payload)

    def _resumed(self, step: str, event: str, default: Any) -> Any:
        noted = self.steps.raw(step)
        assert noted is not None
        found = verdict.read(noted)
        if not found.decided:
            found = self._decide(step, event, found.until)
        if not found.decided:
            self._suspend(Wait(step, event, until=found.until))
        return self._answer(event, found, default)

    def _briefly(self, step: str, event: str, timeout_ms: int, default: Any) -> Any:
        ends = time.monotonic() + timeout_ms / 1000
        while (left := ends - time.monotonic()) > 0 and self._look(event) is None:
            self._sit_out(round(min(left, LOOK) * 1000))
        return self._answer(event, self._decide(step, event, 0), default)

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
        return self.steps.names.take(name, ("argus_celery", call, 0))

    def _suspend(self, wait: Wait) -> NoReturn:
        self.steps.flush()
        if self.reached is None:
            self.reached = wait
        raise Suspended(f"task {self.steps.claim.task_id} waits, and goes on in a later run: let this pass")

    # --- coroutines ------------------------------------------------------------------------------------------------

    def called(self, call: Callable[[], Any]) -> Any:
        """In a coroutine something to await, which looks at the store in a thread; else the call's answer."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return call()
        self.unawaited += 1
        return self._awaited(call)

    async def _awaited(self, call: Callable[[], Any]) -> Any:
        self.unawaited -= 1
        return await asyncio.to_thread(call)
