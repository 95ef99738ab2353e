"""DBOS's side of ``steps.py``, run by a Python of its own that has dbos installed: prints figures as JSON."""

from __future__ import annotations

import json
import sys
import time

from dbos import DBOS

url, steps, tasks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
DBOS(config={"name": "bench", "system_database_url": url, "log_level": "ERROR", "run_admin_server": False})


@DBOS.step()
def step(number: int) -> int:
    return number


@DBOS.workflow()
def many(count: int) -> float:
    began = time.perf_counter()
    for number in range(count):
        step(number)
    return count / (time.perf_counter() - began)


@DBOS.workflow()
def one(number: int) -> int:
    return step(number)


DBOS.launch()
DBOS.register_queue("bench", polling_interval_sec=0.02)
many(20)
rate = many(steps)
began = time.perf_counter()
handles = [DBOS.enqueue_workflow("bench", one, number) for number in range(tasks)]
for handle in handles:
    handle.get_result()
print(json.dumps({"steps": rate, "tasks": tasks / (time.perf_counter() - began)}))
DBOS.destroy()
