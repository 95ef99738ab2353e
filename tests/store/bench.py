"""What the tests of store and flow share: new tasks, a broker that is a list, a count of transactions."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

from argus_celery.config import Settings
from argus_celery.flow.claim import claim
from argus_celery.flow.enqueue import enqueue
from argus_celery.flow.runtime import Runtime
from argus_celery.records import Claim, Delivery, Dispatch, Message, NewTask
from argus_celery.store.engine import Store
from argus_celery.store.schema import leases, tasks


def new_task(
    name: str = "shop.charge", *, body: bytes = b"[[], {}, {}]", queue: str = "celery", **more: Any
) -> NewTask:
    task_id = more.pop("id", None) or str(uuid.uuid4())
    headers = {"id": task_id, "task": name, "lang": "py"}
    message = Message(body, "application/json", "utf-8", headers, {"delivery_mode": 2}, "", queue, queue)
    return NewTask(id=task_id, name=name, message=message, **more)


@dataclass
class Bench:
    """A runtime on a store. What it publishes is appended to ``sent``, the broker."""

    store: Store
    sent: list[Dispatch] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        url = self.store.url.render_as_string(hide_password=False)
        self.rt = Runtime(self.store, Settings(store_url=url, **self.settings), self._publish)

    def _publish(self, dispatches: Sequence[Dispatch]) -> Sequence[str]:
        self.sent += dispatches
        return ()

    def enqueue(self, **more: Any) -> str:
        return enqueue(self.rt, [new_task(**more)])[0].task_id

    def claim(self, holder: str = "w1", task_id: str | None = None) -> Claim | None:
        """Claim by the newest message (of this task)."""
        newest = next(one for one in reversed(self.sent) if task_id in (None, one.task_id))
        return claim(self.rt, holder, [Delivery(newest.task_id, newest.token)])[0]

    def running(self, holder: str = "w1", **more: Any) -> Claim:
        """A task that was enqueued and claimed."""
        granted = self.claim(holder, self.enqueue(**more))
        assert granted is not None
        return granted

    def pass_time(self, seconds: float) -> None:
        self.store.clock_shift += round(seconds * 1000)

    def lease(self, task_id: str) -> Any:
        query = sa.select(leases).where(leases.c.task_id == task_id)
        return self.store.statement(lambda connection: connection.execute(query).first())

    def task(self, task_id: str) -> Any:
        query = sa.select(tasks).where(tasks.c.id == task_id)
        return self.store.statement(lambda connection: connection.execute(query).first())


@dataclass
class Counted:
    statements: int = 0
    transactions: int = 0
    """Commits, and single writes in autocommit."""


def fill(store: Store, finished: int, scheduled: int, tag: str = "") -> None:
    """Finished tasks, and others that are scheduled far away; a tag keeps the ids of two fillings apart."""
    place = {"project_id": 1, "queue": "celery", "priority": 0}
    done = {**place, "name": "t", "message": "{}", "body": b"", "max_losses": 5, "outcome": "succeeded"}
    far = {
        **place,
        "token": 0,
        "holder": "",
        "eligible_at": 2**50,
        "ttl": 30_000,
        "waits": 0,
        "paused": 0,
        "dispatches": 0,
    }
    with store.engine.begin() as connection:
        for start in range(0, finished, 5_000):
            numbers = range(start, min(start + 5_000, finished))
            rows = [{"id": f"end-{tag}-{n}", **done, "created_at": n} for n in numbers]
            connection.execute(sa.insert(tasks), rows)
        for start in range(0, scheduled, 5_000):
            numbers = range(start, min(start + 5_000, scheduled))
            connection.execute(sa.insert(leases), [{"task_id": f"far-{tag}-{n}", **far} for n in numbers])


def stands_alone(connection: Any) -> bool:
    """Is what this connection sends in autocommit?"""
    options = connection.get_execution_options()
    return options.get("isolation_level") == "AUTOCOMMIT" or not options.get("argus_begin", "BEGIN")


@contextmanager
def counted(store: Store) -> Iterator[Counted]:
    """Count what the store is sent."""
    count = Counted()

    def on_statement(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if statement.startswith("BEGIN"):
            return
        count.statements += 1
        alone = stands_alone(connection)
        count.transactions += int(alone and not statement.lstrip().startswith("SELECT"))

    def on_commit(connection: Any) -> None:
        alone = stands_alone(connection)
        count.transactions += int(not alone)

    event.listen(store.engine, "before_cursor_execute", on_statement)
    event.listen(store.engine, "commit", on_commit)
    try:
        yield count
    finally:
        event.remove(store.engine, "before_cursor_execute", on_statement)
        event.remove(store.engine, "commit", on_commit)
