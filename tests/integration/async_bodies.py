"""Tasks whose bodies are coroutines, for the workers of ``worker_bodies``."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

from celery import Celery
from celery.exceptions import Ignore, Reject, SoftTimeLimitExceeded

from argus_celery import current, durable, step
from argus_celery.errors import NoClaim
from argus_celery.hooks.attached import attached
from tests.faults.ledger import Ledger


def register(app: Celery, ledger: Ledger) -> None:
    def note(task: Any, event: str, tag: str, detail: object = "") -> None:
        ledger.note(event, tag, task.request.id, current.token or 0, current.attempt, str(detail))

    async def aslow(self: Any, tag: str, seconds: float, again: float | None = None) -> str:
        """``again``: seconds of each run behind the first."""
        note(self, "start", tag, threading.get_native_id())
        try:
            await asyncio.sleep(seconds if again is None or current.attempt == 1 else again)
        except asyncio.CancelledError:
            note(self, "cancelled", tag, current.lost.is_set())
            raise
        note(self, "end", tag)
        return tag

    async def meet(self: Any, tag: str, number: int) -> int:
        """Waits until as many are here at once, each with its own request in hand."""
        note(self, "start", tag)
        before = self.request.id, current.task_id
        while len(ledger.lines("start", tag)) < number:
            await asyncio.sleep(0.01)
        assert before == (self.request.id, current.task_id) and before[0] == before[1]
        return threading.get_native_id()

    async def aagain(self: Any, tag: str) -> int:
        await asyncio.sleep(0)
        note(self, "start", tag)
        if self.request.retries < 2:
            raise self.retry(countdown=0)
        return int(self.request.retries)

    async def aauto(self: Any, tag: str) -> int:
        await asyncio.sleep(0)
        if self.request.retries < 2:
            raise OSError(tag)
        return int(self.request.retries)

    async def afailing(self: Any, tag: str) -> None:
        await asyncio.sleep(0)
        raise ValueError(tag)

    async def aadd(x: int, y: int) -> int:
        await asyncio.sleep(0)
        return x + y

    async def gathering(self: Any) -> list[str]:
        """What a body starts has the same task in hand."""

        async def part() -> str:
            await asyncio.sleep(0.01)
            return f"{self.request.id}"

        return [*await asyncio.gather(part(), part()), str(current.task_id)]

    async def asoft(self: Any, tag: str, seconds: float, sort: str) -> str:
        """Ends orderly at its soft time limit, as ``sort`` of exception; what it has started is cancelled by then."""
        note(self, "start", tag)

        async def part() -> None:
            try:
                await asyncio.sleep(seconds)
            finally:
                note(self, "part is over", tag)

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(part())
        except {"limit": SoftTimeLimitExceeded, "cancelled": asyncio.CancelledError, "none": ()}[sort]:
            assert ledger.lines("part is over", tag)
            return "in order"
        return "late"

    async def ablocked(self: Any, tag: str, seconds: float) -> None:
        """Blocks the event loop."""
        note(self, "start", tag)
        time.sleep(seconds)

    async def abusy(self: Any, tag: str, number: int) -> str:
        """Calls what blocks in another thread, until as many do so at once; it has the same task in hand. Enqueues."""

        def blocking() -> tuple[str, str | None]:
            note(self, "start", tag)
            while len(ledger.lines("start", tag)) < number:
                time.sleep(0.01)
            return self.request.id, current.task_id

        ids = await asyncio.to_thread(blocking)
        current.check()
        project = await attached(app).aproject("made inside")  # type: ignore[attr-defined]
        result = await project.aenqueue(app.tasks["aadd"].s(1, 2))
        return "alike" if ids == (self.request.id, current.task_id) and result.id[14] == "5" else f"{ids} {result.id}"

    async def aends(self: Any, tag: str, how: str) -> str:
        await asyncio.sleep(0)
        note(self, "start", tag)
        if how == "ignore":
            raise Ignore
        if how == "reject":
            raise Reject("no")
        if how == "replace":
            return str(self.replace(app.tasks["aadd"].s(1, 2)))
        if how == "cancel":
            raise asyncio.CancelledError
        if how == "state":
            self.update_state(state="PROGRESS", meta={"tag": tag})
            assert self.AsyncResult(self.request.id).state == "PROGRESS"
            return "told"
        if how in ("exit", "exit of a part") and current.attempt == 1:
            if how == "exit":
                sys.exit(3)
            await asyncio.create_task(exits())
        return how

    async def exits() -> None:
        sys.exit(3)

    async def adying(self: Any, tag: str) -> list[str]:
        """The process dies in the middle of a step at the first attempt, another step beside it."""

        async def act(what: str) -> str:
            note(self, "act", what)
            await asyncio.sleep(0)
            if what == "dies" and current.attempt == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return what

        first = await current.step("first", act, "first")
        return [first, *await asyncio.gather(*(current.step(what, act, what) for what in ("beside", "dies", "last")))]

    @step(name="handled")
    def handle(task: Any, tag: str) -> None:
        note(task, "handled", tag)

    class Telling(app.Task):
        abstract = True

        def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
            handle(self, args[0])

    async def abeside(self: Any, tag: str) -> int:
        """Works beside a wait, and leaves a thread behind that would go on working."""

        async def act() -> None:
            note(self, "act", tag)

        async def work() -> None:
            try:
                await current.step("first", act)
                if current.attempt == 1:
                    await asyncio.sleep(600)
                await current.step("second", act)
            except asyncio.CancelledError:
                note(self, "cancelled", tag)
                raise

        def outlive() -> None:
            while not ledger.lines("end", tag):
                time.sleep(0.05)
            try:
                current.step("late", note, self, "late", tag)
            except NoClaim:
                ledger.note("refused", tag)

        async def wait() -> None:
            while not ledger.lines("act", tag):
                await asyncio.sleep(0.01)
            await current.sleep(1)

        if current.attempt == 1:
            left = asyncio.create_task(asyncio.to_thread(outlive))
            await asyncio.sleep(0)
            assert not left.done()
        await asyncio.gather(wait(), work())
        note(self, "end", tag)
        return current.attempt

    async def opening(self: Any, tag: str) -> None:
        """Leaves an asynchronous generator open, a task that runs, and one that is to outlive the body."""

        async def numbers() -> AsyncIterator[int]:
            try:
                yield 1
            finally:
                await asyncio.sleep(0)
                ledger.note("generator closed", tag)

        async def behind(what: str) -> None:
            try:
                await asyncio.sleep(600)
            finally:
                ledger.note(f"{what} cancelled", tag)

        opened.append(numbers())
        opened.append(asyncio.create_task(behind("task")))
        opened.append(asyncio.create_task(behind("client"), context=contextvars.Context()))
        assert await anext(opened[0]) == 1
        await asyncio.sleep(0)  # both have begun

    opened: list[Any] = []
    body: Any
    for body in (ablocked, abusy, aends, opening):
        durable(app.task(body, name=body.__name__, bind=True, shared=False))
    durable(app.task(aslow, name="alimited", bind=True, shared=False, time_limit=2, autoretry_for=(Exception,)))
    durable(app.task(ablocked, name="ablocked_limited", bind=True, shared=False, time_limit=2))
    durable(app.task(asoft, name="asoft", bind=True, shared=False, soft_time_limit=2))
    for body in (aslow, meet, aagain, afailing, adying, gathering):
        durable(app.task(body, name=body.__name__, bind=True, shared=False))
    durable(app.task(abeside, name="abeside", bind=True, shared=False, base=Telling))
    durable(app.task(aauto, name="aauto", bind=True, shared=False, autoretry_for=(OSError,), default_retry_delay=0))
    durable(app.task(aadd, name="aadd", shared=False))
