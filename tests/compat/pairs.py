"""A broker and a result backend on servers of their own, and the store: where a run of the suite happens."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from argus_celery.store import setup
from argus_celery.store.engine import Store
from tests.services import PostgresServer, RabbitServer, RedisServer


@dataclass(frozen=True, slots=True)
class Pair:
    """Without a store it is the baseline, which knows no argus."""

    broker: str
    results: str
    store: str | None = None

    @property
    def name(self) -> str:
        return f"{self.broker}+{self.results}" if self.store else f"{self.broker}+{self.results}-without-argus"

    @property
    def baseline(self) -> Pair:
        """The same broker without argus, and with Redis for the results."""
        return Pair(self.broker, "redis")


DURABLE = (
    Pair("redis", "argus", "sqlite"),
    Pair("redis", "redis", "sqlite"),
    Pair("rabbitmq", "argus", "postgres"),
    Pair("rabbitmq", "redis", "sqlite"),
)
ALL = (Pair("redis", "redis"), Pair("rabbitmq", "redis"), *DURABLE)


@contextlib.contextmanager
def servers(pair: Pair) -> Iterator[dict[str, str]]:
    """The environment that the suite reads. Its tests count in Redis on every pair."""
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(RedisServer())
        found = {"REDIS_HOST": "127.0.0.1", "REDIS_PORT": str(redis.port), "TEST_BACKEND": "argus://"}
        found["TEST_BROKER"] = stack.enter_context(RabbitServer()).url if pair.broker == "rabbitmq" else redis.url
        if pair.results == "redis":
            found["TEST_BACKEND"] = redis.url
        if pair.store:
            found["ARGUS_COMPAT_STORE"] = stack.enter_context(_store(pair.store))
        yield found


@contextlib.contextmanager
def _store(name: str) -> Iterator[str]:
    if name == "sqlite":
        with tempfile.TemporaryDirectory(prefix="argus-compat-") as folder:
            yield f"sqlite:///{folder}/store.db"
    else:
        with PostgresServer() as server:
            setup.init(Store(server.url, app_name="celery.tests"))  # as `celery -A … argus init` does
            yield server.url
