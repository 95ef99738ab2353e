"""The tasks that the workers of test_transport run: plain Celery on an argus:// broker, results in files."""

from __future__ import annotations

import os
import time
from pathlib import Path

from celery import Celery

import argus_celery  # noqa: F401 - registers argus://


def make_app(broker: str, folder: Path) -> Celery:
    results = folder / "results"
    results.mkdir(exist_ok=True)
    app = Celery("transport", broker=broker, backend=f"file://{results}", set_as_current=False)
    app.conf.update(worker_send_task_events=True, worker_hijack_root_logger=True, result_chord_retry_interval=0.2)
    for body in (add, total, nap):
        app.task(name=body.__name__)(body)
    return app


def add(left: int, right: int) -> int:
    return left + right


def total(numbers: list[int]) -> int:
    return sum(numbers)


def nap(seconds: float) -> None:
    time.sleep(seconds)


if "TRANSPORT_BROKER" in os.environ:
    app = make_app(os.environ["TRANSPORT_BROKER"], Path(os.environ["TRANSPORT_FOLDER"]))
