"""A bench on each database, with the times of the fault bench, and a second process on the same store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from argus_celery.run import in_hand
from argus_celery.store.schema import metadata
from tests.flow.faults import UnluckyStore
from tests.flow.running import Log
from tests.invariants import History, check
from tests.store.bench import Bench

TIMES = {"lease_ttl": 6, "sweep_interval": 3, "dispatch_ttl": 3, "dispatch_ttl_max": 30}


class FlowBench(Bench):
    store: UnluckyStore
    history: History


@pytest.fixture
def bench(store_url: str) -> Iterator[FlowBench]:
    """The store's invariants are checked when the test is over."""
    yield from _checked(store_url)


@pytest.fixture
def sqlite_bench(sqlite_store_url: str) -> Iterator[FlowBench]:
    """For what no database has a part in."""
    yield from _checked(sqlite_store_url)


def _checked(url: str) -> Iterator[FlowBench]:
    bench = _bench(url)
    metadata.create_all(bench.store.engine)
    bench.history = History(bench.store)
    yield bench
    bench.history.check()
    bench.store.dispose()


@pytest.fixture(autouse=True)
def nobody_runs() -> Iterator[None]:
    """A run that a test has begun does not outlive it."""
    token = in_hand.set(None)
    yield
    in_hand.reset(token)


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def other(bench: FlowBench) -> Iterator[FlowBench]:
    """Another process that shares the store and the broker."""
    other = _bench(bench.store.url.render_as_string(hide_password=False), bench)
    yield other
    check(other.store, bench.history.revived, bench.history.restarted)
    other.store.dispose()


def _bench(url: str, like: FlowBench | None = None) -> FlowBench:
    bench = FlowBench(UnluckyStore(url, app_name="tests"), settings=dict(TIMES))
    if like is not None:
        bench.sent = like.sent
    return bench
