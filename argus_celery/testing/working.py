"""A worker that works until nothing can go on but by time or by somebody's word."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from typing import Any

from celery import Celery
from celery.worker import state

from argus_celery.errors import StoreUnavailable
from argus_celery.store.engine import Store
from argus_celery.store.horizon import Horizon, horizon

QUIET = 0.5
"""Seconds after which a message that nobody takes is believed lost."""
LOOK_EVERY = 0.02


def work_until_idle(app: Celery, store: Store, queues: set[str]) -> None:
    """In a process of its own, which is this worker until it ends."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s", force=True)
    app.finalize()
    app.set_current()
    app.set_default()
    worker = app.WorkController(
        pool="solo",
        concurrency=1,
        hostname=f"testing-{os.getpid()}@localhost",
        queues=sorted(set(app.amqp.queues) | queues),
        without_heartbeat=True,
        without_mingle=True,
        without_gossip=True,
        ready_callback=lambda consumer: threading.Thread(target=_watch, args=[store], daemon=True).start(),
    )
    worker.start()


def _watch(store: Store) -> None:
    quiet = Quiet()
    while True:
        try:
            if quiet.is_idle(horizon(store)):
                state.should_stop = os.EX_OK
                return
        except StoreUnavailable:
            pass  # it is asked again
        time.sleep(LOOK_EVERY)


class Quiet:
    """Tells, of one look after the other, whether a worker has anything left to do."""

    def __init__(self) -> None:
        self._seen: Any = None
        self._since = 0.0

    def is_idle(self, found: Horizon) -> bool:
        facts = (found.alive, found.owed)
        if facts != self._seen:
            self._seen, self._since = facts, time.monotonic()
        if found.has_ended:
            return True
        if found.is_busy:
            return False
        quiet = time.monotonic() - self._since > QUIET
        return quiet or not (found.owed or any(one.holder == "queue" for one in found.alive))
