"""A rate limit counts starts. Where tasks wait for it long, their messages are repeated; a copy of one that has run in
the meantime is dropped before it takes the place of a task that has not."""

from __future__ import annotations

import logging
from itertools import islice
from typing import Any

from celery import bootsteps

from argus_celery.errors import ArgusError
from argus_celery.flow.claim import refuse_stale
from argus_celery.hooks.attached import attached
from argus_celery.hooks.request import DurableRequest
from argus_celery.records import Delivery

logger = logging.getLogger(__name__)

AT_ONCE = 100


class RateLimits(bootsteps.StartStopStep):
    """Consumer step that stands before each look into a bucket of tasks that wait for their rate."""

    name = "argus.rate_limits"

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        look = consumer._schedule_bucket_request

        def schedule(bucket: Any) -> Any:
            _drop_stale(consumer.app, bucket)
            return look(bucket)

        consumer._schedule_bucket_request = schedule


def _drop_stale(app: Any, bucket: Any) -> None:
    waiting = {_delivery(request): request for request, _ in islice(bucket.contents, AT_ONCE) if _is_ours(request)}
    if not waiting:
        return
    try:
        stale = refuse_stale(attached(app).runtime, list(waiting))
    except ArgusError as error:
        logger.warning("argus: copies that wait for their rate limit are left to be refused later: %s", error)
        return
    if stale:
        dropped = [one for one in bucket.contents if _is_ours(one[0]) and _delivery(one[0]) in stale]
        for one in dropped:
            bucket.contents.remove(one)
            one[0].acknowledge()


def _is_ours(request: Any) -> bool:
    return isinstance(request, DurableRequest) and request.claimed is not None


def _delivery(request: Any) -> Delivery:
    task_id, token = request.claimed
    return Delivery(task_id, token - 1)
