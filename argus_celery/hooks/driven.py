"""A body that is a coroutine: it runs on the event loop of the process, and its run waits for its end.

Whatever would be raised in a body is raised in the thread that waits, or told by ``Run.stop``: it cancels the
coroutine, and is what the run ends with unless the coroutine says otherwise. At its hard time limit a coroutine is not
waited for any longer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from typing import Any

from celery.exceptions import SoftTimeLimitExceeded

from argus_celery.errors import BodyCancelled
from argus_celery.hooks import greenlets
from argus_celery.hooks.carried import CarriedCoroutine, carried_here
from argus_celery.hooks.eventloop import EventLoop, event_loop
from argus_celery.hooks.grouped import out_of_group
from argus_celery.hooks.timelimits import NO_LIMITS, Clock, HardTimeLimit, Limits
from argus_celery.run import Run, in_hand

logger = logging.getLogger(__name__)


class SoftTimeLimit(SoftTimeLimitExceeded, asyncio.CancelledError):
    """A soft time limit as a coroutine meets it: an ``except`` of either kind catches it, and what the coroutine has
    started is cancelled with it."""


def drive(body: CarriedCoroutine, name: str, limits: Limits = NO_LIMITS) -> Any:
    """Run it to its end, and return or raise what it does. Raises ``HardTimeLimit``."""
    if asyncio._get_running_loop() is None:
        return _drive(Driven(event_loop(), body, name, limits))
    own = EventLoop()  # an eager call in a coroutine: the loop that runs here cannot be waited for
    try:
        return _drive(Driven(own, body, name, limits))
    finally:
        own.close()


def _drive(driven: Driven) -> Any:
    run = in_hand.get()
    with _stopping(run, driven):
        driven.run_to_end()
    return driven.outcome()


@contextmanager
def _stopping(run: Run | None, driven: Driven) -> Iterator[None]:
    """From here on the run is told by a cancellation."""
    if run is None:
        yield
        return
    with run.lock:
        before, run.stop = run.stop, driven.stop
    try:
        yield
    finally:
        with run.lock:
            run.stop = before


class Driven:
    """One coroutine on the loop."""

    def __init__(self, loop: EventLoop, body: CarriedCoroutine, name: str, limits: Limits) -> None:
        self.loop, self.body, self.name = loop, body, name
        self.clock = Clock(limits)
        self.done = greenlets.flag()
        self.task: asyncio.Task[None] | None = None
        self.stopped_by: BaseException | None = None
        self.value: Any = None
        self.error: BaseException | None = None

    def stop(self, error: BaseException) -> None:
        """From any thread, and from a signal handler."""
        self.stopped_by = error
        self.loop.call(self._cancel, error)

    def run_to_end(self) -> None:
        """Raises only what ends the wait: a hard time limit, or what a loop that something blocks does not hear of."""
        started, ended = False, False
        while not ended:
            try:
                started = started or self._start()
                ended = self.done.wait(self.clock.pause())
            except BaseException as error:
                self.clock.unheard(error)
                self.stop(error)
                if greenlets.is_time_limit(error):
                    raise
            else:
                self._look()

    def _look(self) -> None:
        if (soft := self.clock.soft_passed()) is not None:
            logger.warning("Soft time limit (%ss) exceeded for %s", soft, self.name)
            self.stop(SoftTimeLimitExceeded(soft))
        if (hard := self.clock.hard_passed()) is not None:
            self.stop(asyncio.CancelledError())
            raise HardTimeLimit(hard)
        if (error := self.clock.given_up()) is not None:
            raise error

    def _start(self) -> bool:
        context = copy_context()
        context.run(carried_here.set, self.body.carried)
        self.loop.call(self._create, context=context)
        return True

    def outcome(self) -> Any:
        error, self.error = self.error, None
        if error is None:
            return self.value
        if not isinstance(error, asyncio.CancelledError):
            raise out_of_group(error)
        if self.stopped_by is None:
            raise BodyCancelled(f"{self.name} was cancelled from inside: a body must catch that") from error
        raise self.stopped_by from error

    # --- in the thread of the loop ---------------------------------------------------------------------------------

    def _create(self) -> None:
        self.task = self.loop.loop.create_task(self._run(), name=self.name)
        if self.stopped_by is not None:
            self._cancel(self.stopped_by)

    def _cancel(self, error: BaseException) -> None:
        if self.task is None:
            return  # it is cancelled as it begins
        self.clock.heard()
        self.body.instead = SoftTimeLimit(*error.args) if isinstance(error, SoftTimeLimitExceeded) else None
        self.task.cancel()

    async def _run(self) -> None:
        try:
            self.value = await self.body
        except BaseException as error:
            self.error = error
        finally:
            try:
                await self._end_what_it_started()
            finally:
                self.done.set()

    async def _end_what_it_started(self) -> None:
        """Whatever the body has running beside its end is cancelled, and waited for: the run is not over before."""
        left = self._left()
        if left and self.error is None:
            logger.warning(
                "argus: %s has returned before what it had started, which is cancelled: %s. Await it in the body, or"
                " start what is to outlive it in an empty context (create_task(…, context=contextvars.Context()))",
                self.name,
                ", ".join(task.get_name() for task in left),
            )
        while left:
            for task in left:
                task.cancel()
            with suppress(asyncio.CancelledError):  # told to stop: they are told once more
                await asyncio.wait(left)
            left = self._left()

    def _left(self) -> list[asyncio.Task[Any]]:
        return [task for task in self.body.carried.tasks if not task.done() and task is not self.task]
