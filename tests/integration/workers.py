"""Real worker processes on a SQLite store and a Redis broker of their own."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from celery import Celery

from argus_celery.records import AttemptInfo, TaskInfo
from argus_celery.store import reports
from argus_celery.store.engine import Store
from argus_celery.store.schema import leases
from tests.faults.ledger import Ledger, Line, wait_for
from tests.faults.nodes import Node
from tests.faults.setup import Setup
from tests.integration.worker_bodies import make_app


@dataclass
class Bench:
    """A producer, and the workers it has started."""

    setup: Setup
    folder: Path
    nodes: list[Worker] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.setup.ledger)
        self.app: Celery = make_app(self.setup, producer=True)
        self.store = Store(self.setup.store)

    def worker(
        self, name: str = "w1", *arguments: str, pool: str = "prefork", concurrency: int = 1, **setup: Any
    ) -> Worker:
        """A worker that consumes by now. The pool "spawn" is prefork whose children are spawned."""
        node = self.launch(name, *arguments, pool=pool, concurrency=concurrency, **setup)
        node.wait_ready()
        return node

    def launch(
        self, name: str, *arguments: str, pool: str = "prefork", concurrency: int | None = 1, **setup: Any
    ) -> Worker:
        """A worker that boots."""
        if pool == "spawn":
            # A spawned child imports everything anew; on a busy machine that takes longer than the 4 s it is given.
            spawned = {"worker_pool_start_method": "spawn", "worker_proc_alive_timeout": 60}
            pool, setup["conf"] = "prefork", {**self.setup.conf, **spawned}
        call = ["-A", "tests.integration.worker_bodies", "worker", "-n", f"{name}@test", "-P", pool]
        size = [] if concurrency is None else ["-c", str(concurrency)]
        options = ["-l", "INFO", "--without-mingle", "--without-gossip"]
        node = Worker(name, replace(self.setup, pool=pool, **setup), self.folder, [*call, *size, *options, *arguments])
        self.nodes.append(node)
        return node

    def send(self, name: str, *args: Any, **options: Any) -> str:
        return str(self.app.tasks[name].apply_async(args, **options).id)

    def find(self, task_id: str) -> TaskInfo | None:
        return reports.task_info(self.store, task_id)

    def task(self, task_id: str) -> TaskInfo:
        info = self.find(task_id)
        assert info is not None
        return info

    def wait_ended(self, task_id: str, *, within: float) -> TaskInfo:
        return wait_for(lambda: self.task(task_id).state.ended and self.task(task_id), within, f"{task_id} ends")

    def wait(self, event: str, tag: str | None = None, *, count: int = 1, within: float = 10) -> list[Line]:
        return self.ledger.wait(event, tag, count=count, within=within)

    def attempts(self, task_id: str) -> list[AttemptInfo]:
        return reports.attempt_rows(self.store, task_id)

    def eligible_at(self, task_id: str) -> int:
        query = sa.select(leases.c.eligible_at).where(leases.c.task_id == task_id)
        return self.store.statement(lambda connection: connection.execute(query).scalar_one())

    def wait_renewed(self, task_id: str, until: int, *, within: float) -> None:
        """Until the lease lapses at this instant or later."""
        wait_for(lambda: self.eligible_at(task_id) >= until, within, f"the lease of {task_id} is renewed")


class Worker(Node):
    def quit(self) -> None:
        """SIGQUIT to the main process: a cold shutdown."""
        self.may_exit = True
        self.process.send_signal(signal.SIGQUIT)


@contextmanager
def bench(broker: str, folder: Path, **setup: Any) -> Iterator[Bench]:
    made = Setup(
        broker=broker,
        store=setup.pop("store", f"sqlite:///{folder / 'store.db'}"),
        ack=setup.pop("ack", "early"),
        pool="prefork",
        ledger=str(folder / "ledger"),
        **setup,
    )
    one = Bench(made, folder)
    try:
        yield one
        for node in one.nodes:
            assert node.running or node.may_exit, f"{node.name} exited by itself:\n{node.tail()}"
    finally:
        for node in one.nodes:
            node.clean_up()
