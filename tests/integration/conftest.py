"""The places of the table of combinations, each broker for tests of raw messages, and benches of real workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from kombu import pools

from tests.integration import combinations
from tests.integration.brokers import BROKERS, Broker
from tests.integration.combinations import KINDS, Place
from tests.integration.workers import Bench, bench
from tests.services.fresh import fresh_redis, fresh_vhost


@pytest.fixture
def workers(redis_broker: str, tmp_path: Path) -> Iterator[Bench]:
    """Renewals come every second."""
    with bench(redis_broker, tmp_path, settings={"lease_ttl": 3}) as one:
        yield one


@pytest.fixture
def patient(redis_broker: str, tmp_path: Path) -> Iterator[Bench]:
    """With a TTL that no test waits for: what is quick is quick by other means than a lapse."""
    with bench(redis_broker, tmp_path, settings={"lease_ttl": 60}) as one:
        yield one


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def _place(kind: str, redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """With a worker that runs as long as the module's tests of this kind."""
    folder = tmp_path_factory.mktemp(kind)
    with fresh_redis(redis_url) as redis:
        made = combinations.place(kind, f"sqlite:///{folder / 'store.db'}", redis)
        with made.working():
            yield made


@pytest.fixture
def place(_place: Place, request: pytest.FixtureRequest) -> Iterator[Place]:
    _place.log.clear()
    with _place.telling(request.function):
        yield _place


@pytest.fixture
def another(
    kind: str, redis_broker: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Place]]:
    """Make a place of its own, with this configuration; its worker is the test's to start."""
    with ExitStack() as stack:

        def make(**conf: Any) -> Place:
            made = combinations.place(kind, f"sqlite:///{tmp_path / 'store.db'}", redis_broker, **conf)
            stack.enter_context(made.telling(request.function))
            return made

        yield make


EACH_BROKER = [
    "argus",
    pytest.param("redis", marks=pytest.mark.redis),
    pytest.param("rabbitmq", marks=pytest.mark.rabbitmq),
]


@pytest.fixture(scope="module")
def rabbitmq_place(rabbitmq: tuple[str, list[str] | None]) -> Iterator[str]:
    """One virtual host for all tests of a file, which use queues of their own."""
    with fresh_vhost(*rabbitmq) as url:
        yield url


@pytest.fixture(params=EACH_BROKER)
def broker(request: pytest.FixtureRequest, sqlite_store_url: str) -> Broker:
    """Each broker in turn, for a test that looks at raw messages."""
    fixtures = {"redis": "redis_broker", "rabbitmq": "rabbitmq_place"}
    kind = str(request.param)
    pools.reset()  # what connections of other tests remember as declared is gone from the broker
    url = request.getfixturevalue(fixtures[kind]) if kind in fixtures else f"argus+{sqlite_store_url}"
    return BROKERS[kind](url)
