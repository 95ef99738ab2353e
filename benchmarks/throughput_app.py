"""The tasks of ``throughput.py``: the same no-op, plain and durable, each on a queue of its own kind of message."""

from __future__ import annotations

import os

import sqlalchemy as sa
from celery import Celery

from argus_celery import Argus, durable
from argus_celery.store.schema import leases
from argus_celery.store.setup import init

app = Celery("bench", broker=os.environ.get("BENCH_BROKER", "redis://"))
app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=4, broker_connection_retry_on_startup=True)
argus = Argus(app, store=os.environ.get("BENCH_STORE", "sqlite:///bench.db"))
init(argus.runtime.store)
argus.runtime.store.dispose()


@app.task
def plain() -> None:
    pass


@durable
@app.task
def durable_noop() -> None:
    pass


def left(kind: str) -> int:
    """Tasks not done yet: in the broker (plain), or with a lease (durable)."""
    if kind == "durable":
        query = sa.select(sa.func.count()).select_from(leases)
        return int(argus.runtime.store.statement(lambda connection: connection.execute(query).scalar()) or 0)
    with app.connection_for_read() as connection:
        queue = app.amqp.queues[app.conf.task_default_queue]
        try:
            return int(queue(connection.default_channel).queue_declare(passive=True).message_count)
        except connection.channel_errors:
            return 0  # Redis forgets an empty queue
