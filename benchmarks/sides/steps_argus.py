"""The Argus side of ``steps.py``: a Celery worker in this process, the store as its broker. Prints figures as JSON."""

from __future__ import annotations

import json
import sys
import time

from celery import Celery
from celery.contrib.testing.worker import start_worker
from celery.signals import setup_logging

from argus_celery import Argus, current, durable
from argus_celery.store.setup import init

url, steps, tasks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
app = Celery("bench", broker=f"argus+{url}", backend="argus://")
argus = Argus(app, store=url)
init(argus.runtime.store)


@setup_logging.connect
def quiet(**_: object) -> None: ...


def step(number: int) -> int:
    return number


@durable
@app.task
def many(count: int) -> float:
    began = time.perf_counter()
    for number in range(count):
        current.step(f"step {number}", step, number)
    return count / (time.perf_counter() - began)


@durable
@app.task
def one(number: int) -> int:
    return current.step("step", step, number)


with start_worker(app, pool="threads", concurrency=10, perform_ping_check=False, shutdown_timeout=60):
    many.delay(20).get(timeout=60)
    rate = many.delay(steps).get(timeout=600)
    began = time.perf_counter()
    for result in [one.delay(number) for number in range(tasks)]:
        result.get(timeout=600)
    print(json.dumps({"steps": rate, "tasks": tasks / (time.perf_counter() - began)}))
