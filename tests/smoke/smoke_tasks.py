"""What the smoke tests run."""

from __future__ import annotations

import time

from celery import shared_task
from celery.utils.log import get_task_logger

from argus_celery import current, durable

log = get_task_logger(__name__)


@durable
@shared_task
def quick(tag: str) -> str:
    log.info("run %s", tag)
    return tag


@durable
@shared_task
def slow(tag: str, seconds: float) -> str:
    log.info("begin %s attempt %s", tag, current.attempt)
    time.sleep(seconds)
    log.info("end %s", tag)
    return tag


@durable
@shared_task
def join(parts: list[str]) -> str:
    return "".join(parts)
