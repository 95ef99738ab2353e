"""A Celery app with Argus and a worker in this process: SQLite as the store, Redis as the broker."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from celery import Celery
from celery.contrib.testing.worker import start_worker
from celery.signals import setup_logging

from argus_celery import Argus
from argus_celery.records import TaskInfo, TaskState
from argus_celery.store import reports
from argus_celery.store.schema import leases, tasks


@setup_logging.connect(weak=False)
def leave_logging_to_pytest(**_: Any) -> None:
    """Celery sets up none where this signal has a receiver."""


TIMES = {"lease_ttl": 6, "sweep_interval": 3, "dispatch_ttl": 3, "dispatch_ttl_max": 30}
_numbers = itertools.count(1)


@dataclass
class Shop:
    """One app, with a log of what its bodies did."""

    app: Celery
    argus: Argus
    log: list[Any] = field(default_factory=list)

    @contextmanager
    def worker(self, pool: str = "threads", **options: Any) -> Iterator[None]:
        with start_worker(self.app, pool=pool, perform_ping_check=False, shutdown_timeout=30, **options):
            yield

    def task(self, task_id: str) -> TaskInfo:
        found = reports.task_info(self.argus.runtime.store, task_id)
        assert found is not None, f"the store does not know {task_id}"
        return found

    def rows(self) -> dict[str, Any]:
        query = sa.select(tasks)
        return {row.id: row for row in self._all(query)}

    def names(self) -> list[str]:
        return sorted(row.name.rpartition(".")[2] for row in self.rows().values())

    def lease(self, task_id: str) -> Any:
        return next(iter(self._all(sa.select(leases).where(leases.c.task_id == task_id))), None)

    def _all(self, query: Any) -> list[Any]:
        return self.argus.runtime.store.statement(lambda connection: list(connection.execute(query)))

    def ended(self, task_id: str, timeout: float = 15.0) -> TaskInfo:
        until(lambda: self.task(task_id).state.ended, timeout, lambda: self.task(task_id))
        return self.task(task_id)

    def ended_once_known(self, task_id: str) -> TaskInfo:
        until(lambda: task_id in self.rows(), 15, self.rows)
        return self.ended(task_id)

    def until_logged(self, *entries: Any) -> None:
        until(lambda: set(entries) <= set(self.log), 15, lambda: self.log)

    def drained(self, timeout: float = 20.0) -> None:
        until(lambda: not self._all(sa.select(leases.c.task_id)), timeout, lambda: self._all(sa.select(leases)))

    def states(self) -> set[TaskState]:
        return {self.task(task_id).state for task_id in self.rows()}


def until(fact: Callable[[], Any], timeout: float = 15.0, told: Callable[[], Any] = lambda: "") -> None:
    """Wait for a fact."""
    ends = time.monotonic() + timeout
    while not fact():
        assert time.monotonic() < ends, f"not within {timeout} s: {told()}"
        time.sleep(0.02)


def shop(store: str, broker: str, backend: str | None = "argus://", **settings: Any) -> Shop:
    # A name of its own: shared tasks and signals of another test's app must not meet this one.
    app = Celery(f"shop{next(_numbers)}", broker=broker, backend=backend, set_as_current=False)
    app.conf.worker_enable_remote_control = False
    app.conf.broker_connection_retry_on_startup = True
    argus = Argus(app, store=store, **{**TIMES, **settings})
    return Shop(app, argus)
