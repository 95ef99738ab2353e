"""Tasks with steps, for the workers of ``worker_bodies``. Each dies where it is told to, at its first attempt."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

from celery import Celery

from argus_celery import current, durable, step
from tests.faults.ledger import Ledger


def register(app: Celery, ledger: Ledger) -> None:
    def act(what: str, dies: bool = False) -> str:
        ledger.note("act", what, current.task_id or "", current.token or 0, current.attempt)
        if dies and current.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return what

    @step(key="args.url", retries=2, backoff=0.01)
    def get(url: str, fails: int) -> str:
        ledger.note("act", url)
        if len(ledger.lines("act", url)) <= fails:
            raise OSError(url)
        return url

    async def aact(what: str, dies: bool = False) -> str:
        return act(what, dies)

    def stepping(names: str, dies_in: str) -> list[str]:
        return [current.step(name, act, name, name == dies_in) for name in names]

    async def astepping(names: str, dies_in: str) -> list[str]:
        return [await current.step(name, aact, name, name == dies_in) for name in names]

    def looping(items: list[Any], dies_in: str, batch: int = 1) -> int:
        done = 0
        for item in current.each(items, batch=batch):
            current.step("act", act, item, item == dies_in)
            done += 1
        return done

    def getting(urls: list[str], fails: int) -> list[str]:
        return [get(url, fails) for url in urls]

    @step(timeout=0.2)
    def rest() -> None:
        time.sleep(60)

    @step(timeout=0.2)
    async def arest() -> None:
        await asyncio.sleep(60)

    def late() -> None:
        rest()

    async def alate() -> None:
        await arest()

    for body in (late, alate, stepping, astepping, looping, getting):
        durable(app.task(body, name=body.__name__, shared=False))
