"""How long it takes at worst until work goes on, by what has failed, from the settings.

Counted from the fault, or from when the first worker is there if none was; without what the work itself takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from argus_celery.config import Settings
from argus_celery.hooks.durable import is_durable, options_of
from argus_celery.hooks.loop import AWAY_PAUSE, IDLE_PAUSE
from argus_celery.hooks.worker import CHILD_CHECK_INTERVAL

JITTER = 1.2
"""A sweep comes this much later than its interval at most."""
BLOCKING_CHECK = 11.0
"""Seconds after which Celery gives up a child where the broker's transport has no event loop."""


@dataclass(frozen=True, slots=True)
class Recovery:
    fault: str
    seconds: float
    because: str
    """The settings that it is made of."""


def recoveries(argus: Any) -> Iterator[Recovery]:
    """For this app, whose tasks may have a TTL of their own."""
    app = argus.app
    tasks = [task for task in app.tasks.values() if is_durable(task)]
    ttls = [ttl for task in tasks if (ttl := options_of(task).lease_ttl) is not None]
    with app.connection_for_write() as connection:
        has_loop = bool(connection.transport.implements.asynchronous)
    pool = app.conf.worker_pool if str(app.conf.worker_pool) in ("solo", "threads", "gevent", "eventlet") else "prefork"
    return derive(argus.settings, ttls, children=pool == "prefork", has_loop=has_loop)


def derive(
    settings: Settings, ttls: list[float], *, children: bool = True, has_loop: bool = True
) -> Iterator[Recovery]:
    """From the settings alone."""
    swept = settings.sweep_interval * JITTER
    noticed = min(IDLE_PAUSE, swept)
    longest = max([settings.lease_ttl, *ttls])
    whose = "argus_lease_ttl" if longest == settings.lease_ttl else "the longest lease_ttl of a task"
    renewal = min([settings.lease_ttl, *ttls]) / 3
    if children:
        checked = CHILD_CHECK_INTERVAL if has_loop else BLOCKING_CHECK
        yield Recovery("a pool child is killed", checked, "its worker sees it, and hands the task on")
    yield Recovery(
        "a worker is killed, and another runs or starts on its host",
        swept,
        "its death is proven by the next boot or sweep there (Linux; argus_sweep_interval)",
    )
    yield Recovery(
        "a worker hangs, or its host dies or is cut off", longest + noticed, f"{whose}, and a look at the store"
    )
    yield Recovery(
        "messages are lost: a broker flushed, a publish cut short, a worker that had fetched ahead",
        settings.dispatch_ttl + noticed,
        "argus_dispatch_ttl, and a look at the store",
    )
    yield Recovery(
        "the same, and a worker of that queue has nothing to do",
        min(settings.steal_after + noticed, settings.dispatch_ttl) + noticed,
        "argus_steal_after, and two looks at the store",
    )
    yield Recovery(
        "the same message is lost again and again",
        settings.dispatch_ttl_max + noticed,
        "argus_dispatch_ttl doubles up to argus_dispatch_ttl_max",
    )
    yield Recovery(
        "workers are lost while the store is away (from its return)",
        AWAY_PAUSE + renewal + noticed,
        "those that live renew first: a third of the shortest lease",
    )
