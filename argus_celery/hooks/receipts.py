"""Debts that this process has paid, struck out together a moment later: not a transaction more for each task.

A process that dies before has its last results told to the backend once more.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading

from celery.signals import worker_process_shutdown

from argus_celery.errors import ArgusError
from argus_celery.flow import deliver
from argus_celery.flow.runtime import Runtime

logger = logging.getLogger(__name__)

PAUSE = 0.5
MOST = 200


class Receipts:
    """Of one app, in each of its processes."""

    def __init__(self, rt: Runtime) -> None:
        self.rt = rt
        self._lock = threading.Lock()
        self._paid: list[tuple[str, int]] = []
        self._pid = 0
        worker_process_shutdown.connect(self._leave, weak=False)
        atexit.register(self.run_once)

    def note(self, task_id: str, token: int) -> None:
        """This debt is paid."""
        with self._lock:
            if self._pid != os.getpid():  # what a forking parent had noted is the parent's
                self._pid, self._paid = os.getpid(), []
            self._paid.append((task_id, token))
            first, full = len(self._paid) == 1, len(self._paid) >= MOST
        if full:
            self.run_once()
        elif first:
            timer = threading.Timer(PAUSE, self.run_once)
            timer.daemon = True
            timer.start()

    def run_once(self) -> int:
        """Strike out what was noted; returns how many."""
        with self._lock:
            paid, self._paid = (self._paid if self._pid == os.getpid() else []), []
        if not paid:
            return 0
        try:
            deliver.strike_out(self.rt, paid)
        except ArgusError as error:
            logger.warning("argus: %d result(s) will be delivered once more (%s)", len(paid), error)
        return len(paid)

    def _leave(self, **_: object) -> None:
        self.run_once()
