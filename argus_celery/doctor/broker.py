"""The broker: is it there, and does it keep what it is given?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from argus_celery.doctor.findings import Check, Finding, Level

PATIENCE = 3.0


def reach(argus: Any) -> Iterator[Finding]:
    app = argus.app
    with app.connection_for_write(connect_timeout=PATIENCE) as connection:
        name = connection.as_uri()
        if connection.transport.driver_type == "memory":
            yield Finding(
                Level.WARNING,
                REACH.name,
                "the broker is memory://, which no other process sees: a worker of its own never gets a message",
                'name a broker, or argus:// for none: Celery("app", broker="argus://")',
            )
            return
        if connection.transport.driver_type == "argus" and connection.transport.store.is_absent:
            yield Finding(Level.UNKNOWN, REACH.name, f"{name} is not there yet: its first use makes it")
            return
        try:
            connection.ensure_connection(max_retries=1, interval_start=0, timeout=PATIENCE)
        except Exception as error:
            yield Finding(
                Level.ERROR,
                REACH.name,
                f"the broker {name} cannot be reached: {error}",
                "start it, or mend broker_url; what is enqueued meanwhile is kept in the store and goes out afterwards",
            )
            return
        yield REACH.ok(f"{name} answers")


def eviction(argus: Any) -> Iterator[Finding]:
    """A Redis that is full throws away what it was told to keep, by its policy."""
    with argus.app.connection_for_write(connect_timeout=PATIENCE) as connection:
        if connection.transport.driver_type != "redis":
            return
        try:
            connection.ensure_connection(max_retries=1, interval_start=0, timeout=PATIENCE)
            # INFO, for CONFIG is closed on most hosted servers.
            memory = connection.default_channel.client.info("memory")
        except Exception as error:
            yield Finding(Level.UNKNOWN, EVICTION.name, f"not checked: {error}")
            return
    policy, limit = str(memory.get("maxmemory_policy", "")), int(memory.get("maxmemory", 0))
    if not policy:
        yield Finding(Level.UNKNOWN, EVICTION.name, "not checked: the broker does not tell its eviction policy")
    elif policy.startswith("allkeys"):
        bound = f"from {limit} bytes on" if limit else "once it has a maxmemory, which it has not now,"
        yield Finding(
            Level.WARNING,
            EVICTION.name,
            f"Redis is told {policy}: {bound} it throws away whole queues. Durable messages are sent again after"
            " argus_dispatch_ttl; those of ordinary tasks are gone",
            "set maxmemory-policy to noeviction",
        )
    else:
        yield EVICTION.ok(f"Redis is told {policy}, which evicts no queue")


REACH = Check("broker", reach, needs_store=False)
EVICTION = Check("eviction", eviction, needs_store=False)
CHECKS = (REACH, EVICTION)
