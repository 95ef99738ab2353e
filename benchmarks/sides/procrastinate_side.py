"""Procrastinate, as the environment says: BENCH_STORE, BENCH_SLOTS, and BENCH_CRON for finding stalled jobs.

That is its manual's recipe: a periodic task that retries the jobs of workers without a heartbeat.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from procrastinate import App, PsycopgConnector, SyncPsycopgConnector

from benchmarks.sides import bodies, commands

store = os.environ["BENCH_STORE"]
slots = int(os.environ.get("BENCH_SLOTS", "2"))
cron = os.environ.get("BENCH_CRON")
beat = float(os.environ.get("BENCH_HEARTBEAT", "10"))


def app_with(connector: Any) -> tuple[App, dict[str, Any]]:
    app = App(connector=connector)
    tasks = {name: app.task(getattr(bodies, name), name=name) for name in ("noop", "stamp", "work")}
    if cron:

        @app.periodic(cron=cron)
        @app.task(queueing_lock="retry_stalled_jobs", pass_context=True)
        async def retry_stalled_jobs(context: Any, timestamp: int) -> None:
            for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=3 * beat):
                await app.job_manager.retry_job(job)

    return app, tasks


class ProcrastinateSide:
    def __init__(self) -> None:
        self._tasks: dict[str, Any] | None = None

    @property
    def tasks(self) -> dict[str, Any]:
        if self._tasks is None:
            app, self._tasks = app_with(SyncPsycopgConnector(conninfo=store))
            app.open()
        return self._tasks

    def prepare(self) -> None:
        app, _ = app_with(SyncPsycopgConnector(conninfo=store))
        with app.open():
            app.schema_manager.apply_schema()

    def one(self, body: str, *arguments: Any) -> None:
        names = {"stamp": ("sent",), "work": ("number", "seconds")}.get(body, ())
        self.tasks[body].defer(**dict(zip(names, arguments, strict=True)))

    def bulk(self, count: int) -> None:
        for start in range(0, count, commands.PIECE):
            self.tasks["noop"].batch_defer(*[{} for _ in range(min(commands.PIECE, count - start))])

    def worker(self, name: str) -> None:
        app, _ = app_with(PsycopgConnector(conninfo=store))
        timing = {"update_heartbeat_interval": beat, "stalled_worker_timeout": 3 * beat} if cron else {}

        async def run() -> None:
            async with app.open_async():
                await app.run_worker_async(name=name, concurrency=slots, **timing)

        asyncio.run(run())


if __name__ == "__main__":
    commands.main(ProcrastinateSide())
