"""Tasks that wait, for the workers of ``worker_bodies``."""

from __future__ import annotations

import os
import signal
from typing import Any

from celery import Celery

from argus_celery import current, durable
from tests.faults.ledger import Ledger


def register(app: Celery, ledger: Ledger) -> None:
    def note(task: Any, event: str, tag: str) -> None:
        ledger.note(event, tag, task.request.id, current.token or 0, current.attempt)

    def waiting(self: Any, tag: str) -> list[Any]:
        note(self, "start", tag)
        current.step("once", note, self, "step", tag)
        current.sleep(1)
        note(self, "awake", tag)
        return [current.wait_for(f"answer {tag}", timeout=60), current.wait_for("never", timeout=0.1, default=None)]

    async def awaiting(self: Any, tag: str) -> list[Any]:
        note(self, "start", tag)
        await current.step("once", anote, self, "step", tag)
        await current.sleep(1)
        note(self, "awake", tag)
        told = await current.wait_for(f"answer {tag}", timeout=60)
        return [told, await current.wait_for("never", timeout=0.1, default=None)]

    async def anote(task: Any, event: str, tag: str) -> None:
        note(task, event, tag)

    def fragile(self: Any, tag: str) -> Any:
        """Its child dies once behind the wait."""
        note(self, "start", tag)
        told = current.wait_for(f"answer {tag}")
        if not ledger.lines("killed", tag):
            note(self, "killed", tag)
            os.kill(os.getpid(), signal.SIGKILL)
        return told

    for body in (waiting, awaiting, fragile):
        durable(app.task(body, name=body.__name__, bind=True, shared=False))
