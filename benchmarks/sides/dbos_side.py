"""DBOS, as the environment says: BENCH_STORE, and for its queue BENCH_LIMIT and BENCH_POLL (its defaults without)."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import sqlalchemy as sa
from dbos import DBOS, DBOSClient

from benchmarks.sides import bodies, commands

QUEUE = "bench"
store = os.environ["BENCH_STORE"]


class DbosSide:
    def __init__(self) -> None:
        self._client: DBOSClient | None = None

    @property
    def client(self) -> DBOSClient:
        if self._client is None:
            self._client = DBOSClient(system_database_url=store)
        return self._client

    def prepare(self) -> None:
        launch("prepare")
        DBOS.destroy()

    def one(self, body: str, *arguments: Any) -> None:
        self.client.enqueue({"workflow_name": body, "queue_name": QUEUE}, *arguments)

    def bulk(self, count: int) -> None:
        engine = sa.create_engine(store.replace("postgresql://", "postgresql+psycopg://"))
        for start in range(0, count, commands.PIECE):
            with engine.begin() as connection:
                for _ in range(min(commands.PIECE, count - start)):
                    options: Any = {"workflow_name": "noop", "queue_name": QUEUE}
                    self.client.enqueue_in_transaction(connection, options)

    def worker(self, name: str) -> None:
        stopped = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: stopped.set())
        launch(name)
        stopped.wait()
        DBOS.destroy(workflow_completion_timeout_sec=10)


def launch(name: str) -> None:
    DBOS(
        config={
            "name": "bench",
            "system_database_url": store,
            "executor_id": name,
            "application_version": "1",
            "log_level": "ERROR",
            "run_admin_server": False,
        }
    )
    for body in ("noop", "stamp", "work"):
        DBOS.workflow(name=body)(getattr(bodies, body))
    DBOS.launch()
    limit, poll = os.environ.get("BENCH_LIMIT"), os.environ.get("BENCH_POLL")
    options: dict[str, Any] = {"worker_concurrency": int(limit)} if limit else {}
    DBOS.register_queue(QUEUE, polling_interval_sec=float(poll or 1), **options)


if __name__ == "__main__":
    commands.main(DbosSide())
