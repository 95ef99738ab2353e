"""How the function of a step is called: in good time, and again if it fails."""

from __future__ import annotations

import asyncio
import inspect
import random
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import count
from typing import Any

from argus_celery import signals
from argus_celery.errors import NOT_FOR_RETRY, BadStep, StepTimeout
from argus_celery.flow import interrupt
from argus_celery.flow.complete import lost
from argus_celery.flow.runtime import Runtime
from argus_celery.flow.scope import inmost
from argus_celery.records import Claim

_LOOK = 0.5
"""Seconds between two looks of a coroutine that waits, at whether its lease is lost."""


@dataclass(frozen=True, slots=True)
class StepOptions:
    """``step(...)``: durations in seconds."""

    name: str | None = None
    key: Any = None
    retries: int = 0
    backoff: float = 1.0
    backoff_max: float = 60.0
    retry_for: tuple[type[Exception], ...] = (Exception,)
    timeout: float | None = None

    def pause(self, tried: int) -> float:
        """After so many failures: doubling, and jittered so that those who failed together do not come together."""
        return min(self.backoff * 2.0 ** min(tried - 1, 60), self.backoff_max) * random.uniform(0.5, 1.0)


PLAIN = StepOptions()
OPTIONS = "argus_step"
"""Attribute of a decorated function."""


@dataclass(frozen=True, slots=True)
class Trying:
    """One call of a step of one run."""

    rt: Runtime
    claim: Claim
    lost: threading.Event
    name: str
    options: StepOptions

    def call(self, once: Callable[[], Any]) -> Any:
        for tried in count(1):
            try:
                with self._in_time():
                    return once()
            except Exception as error:
                pause = self._pause(tried, error)
            if self.lost.wait(pause):
                raise lost(self.claim)
        raise AssertionError("unreachable")

    async def call_async(self, once: Callable[[], Awaitable[Any]]) -> Any:
        for tried in count(1):
            try:
                return await self._awaited_in_time(once)
            except Exception as error:
                pause = self._pause(tried, error)
            await self._sleep(pause)
        raise AssertionError("unreachable")

    def _pause(self, tried: int, error: Exception) -> float:
        """How long to wait before the next call; raises the error if there is to be none."""
        options = self.options
        last = tried > options.retries or isinstance(error, NOT_FOR_RETRY) or interrupt.is_over()
        if last or not isinstance(error, options.retry_for):
            raise error
        signals.step_retried.send(
            sender=self.rt.store.app_name,
            task_id=self.claim.task_id,
            token=self.claim.token,
            name=self.name,
            tried=tried,
            error=error,
        )
        return options.pause(tried)

    async def _sleep(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        while not self.lost.is_set() and (left := ends - time.monotonic()) > 0:
            await asyncio.sleep(min(left, _LOOK))
        if self.lost.is_set():
            raise lost(self.claim)

    # --- in time ---------------------------------------------------------------------------------------------------

    def _late(self) -> StepTimeout:
        return StepTimeout(f"task {self.claim.task_id}: the step {self.name!r} took more than {self.options.timeout} s")

    async def _awaited_in_time(self, once: Callable[[], Awaitable[Any]]) -> Any:
        try:
            async with asyncio.timeout(self.options.timeout) as limit:
                return await once()
        except TimeoutError as error:
            if limit.expired():
                raise self._late() from error
            raise

    def _in_time(self) -> AbstractContextManager[None]:
        seconds = self.options.timeout
        if seconds is None:
            return nullcontext()
        if not interrupt.is_possible():
            raise BadStep(
                f"the step {self.name!r} has timeout={seconds}, but runs in a thread, where Python cannot interrupt a"
                " function: make it a coroutine function, give what it calls a timeout, or use the pool prefork or solo"
            )
        return interrupt.within(seconds, self._late)


def options_of(function: Any) -> tuple[StepOptions, Any]:
    """The options that ``@step`` has given to this function, and the function itself."""
    options = getattr(function, OPTIONS, None)
    if not isinstance(options, StepOptions):  # a mock has every attribute
        return PLAIN, function
    plain = function.__wrapped__
    return options, plain if not inspect.ismethod(function) else plain.__get__(function.__self__)


def is_async(function: Any) -> bool:
    """Is it to be awaited?"""
    function = inmost(function)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def refuse_awaitable(name: str, value: Any) -> None:
    """A function that is no coroutine function cannot be told from others before it is called."""
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        raise BadStep(
            f"the function of the step {name!r} gave something to be awaited: hand over the coroutine function itself,"
            f" as in  await current.step({name!r}, fetch, url)"
        )
