"""Workers in the process of a test."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from celery import Celery
from celery.contrib.testing.worker import start_worker
from celery.signals import setup_logging

from argus_celery.app import Argus
from argus_celery.testing.stores import TestStore


@setup_logging.connect(weak=False)
def leave_logging_to_pytest(**_: Any) -> None:
    """Celery sets up none where this signal has a receiver."""


@dataclass
class Workers:
    """``argus_worker(app)``."""

    store: TestStore
    stack: ExitStack

    def __call__(self, app: Celery, pool: str = "threads", concurrency: int = 4, **options: Any) -> Argus:
        """Start a worker of this pool (threads or solo), which ends with the test; returns the app's ``Argus``.

        ``options`` are those of Celery's ``start_worker``.
        """
        argus = self.store.use(app)
        quick = {"perform_ping_check": False, "shutdown_timeout": 30}
        self.stack.enter_context(start_worker(app, pool=pool, concurrency=concurrency, **{**quick, **options}))
        return argus
