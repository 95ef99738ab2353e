"""A store with its tables, and a runtime whose broker is a list, on each database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from argus_celery.store.engine import Store
from argus_celery.store.schema import metadata
from tests.store.bench import Bench


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    store = Store(store_url, app_name="tests")
    metadata.create_all(store.engine)
    yield store
    store.dispose()


@pytest.fixture
def bench(store: Store) -> Bench:
    return Bench(store)


@pytest.fixture
def sqlite_bench(sqlite_store_url: str) -> Iterator[Bench]:
    store = Store(sqlite_store_url, app_name="tests")
    metadata.create_all(store.engine)
    yield Bench(store)
    store.dispose()
