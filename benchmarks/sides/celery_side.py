"""Celery, plain or with Argus, as the environment says: BENCH_BROKER, BENCH_RESULTS, BENCH_STORE and so on."""

from __future__ import annotations

import json
import os
from typing import Any

from celery import Celery

from benchmarks.sides import bodies, commands

broker, results, store = (os.environ.get(f"BENCH_{name}") for name in ("BROKER", "RESULTS", "STORE"))
if store:
    from argus_celery import Argus, durable
    from argus_celery.store.setup import init
else:

    def durable(task: Any) -> Any:
        return task


app = Celery("bench", broker=broker, backend=results)
app.conf.update(
    task_ignore_result=not results,
    task_acks_late=os.environ.get("BENCH_ACKS") == "late",
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
    **json.loads(os.environ.get("BENCH_OPTIONS", "{}")),
)
argus = Argus(app, store=store) if store else None
tasks = {name: durable(app.task(getattr(bodies, name), name=name)) for name in ("noop", "stamp", "work")}


class CelerySide:
    def prepare(self) -> None:
        if argus is not None:
            init(argus.runtime.store)

    def one(self, body: str, *arguments: Any) -> None:
        tasks[body].delay(*arguments)

    def bulk(self, count: int) -> None:
        if argus is not None:
            argus.project("bulk").enqueue_many(tasks["noop"].s() for _ in range(count))
            return
        with app.producer_pool.acquire(block=True) as producer:
            for _ in range(count):
                tasks["noop"].apply_async(producer=producer)

    def worker(self, name: str) -> None:
        pool, slots = os.environ.get("BENCH_POOL", "prefork"), os.environ.get("BENCH_SLOTS", "2")
        app.worker_main(["worker", "-P", pool, "-c", slots, "-n", f"{name}@bench", "-l", "ERROR"])


if __name__ == "__main__":
    commands.main(CelerySide())
