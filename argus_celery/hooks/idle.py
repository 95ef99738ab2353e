"""Is this worker idle, and for which queues?"""

from __future__ import annotations

from typing import Any

from celery.worker import state

from argus_celery.flow.steal import Room


def room_of(worker: Any) -> Room | None:
    """None while anything that it has fetched waits, or all of its pool is busy, or it consumes nothing."""
    active = tuple(state.active_requests)
    if any(request not in active for request in tuple(state.reserved_requests)):
        return None
    slots = (getattr(worker.pool, "num_processes", None) or 0) - len(active)
    consumer = getattr(getattr(worker, "consumer", None), "task_consumer", None)
    queues = [queue.name for queue in consumer.queues] if consumer is not None else []
    return Room(slots, queues, worker.app.tasks.__contains__) if slots > 0 and queues else None
