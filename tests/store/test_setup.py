"""Making a store's tables: on every database, twice, by many at once, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations

from argus_celery.errors import StoreError
from argus_celery.store import setup
from argus_celery.store.engine import Store
from argus_celery.store.migrations.versions import v0001_first_tables as first
from argus_celery.store.migrations.versions import v0002_celery_unchanged as second
from argus_celery.store.migrations.versions import v0003_steered_projects as third
from argus_celery.store.migrations.versions import v0004_resumed_inside as fourth
from argus_celery.store.migrations.versions import v0005_told_in_order as fifth
from argus_celery.store.schema import metadata


@pytest.fixture
def bare(store_url: str) -> Iterator[Store]:
    store = Store(store_url, app_name="shop")
    yield store
    store.dispose()


def test_migrations_make_the_tables_of_the_schema(bare: Store) -> None:
    setup.init(bare)
    with bare.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"include_object": _is_ours})
        assert compare_metadata(context, metadata) == []


def test_the_versions_name_the_same_indexes_and_types_as_the_schema() -> None:
    reached = {
        table: made for one in (first, second, third, fourth, fifth) for table, made in _described(one.metadata).items()
    }
    for version in (second, third, fourth, fifth):
        for table, columns in version.new_columns.items():
            reached[table][0].update({column.name: _column(column) for column in columns})
    for index, table, names, _ in third.new_indexes:
        reached[table] = (reached[table][0], sorted([*reached[table][1], (index, list(names))]))
    assert reached == _described(metadata)


def test_a_store_of_the_first_version_is_brought_up_to_date(bare: Store) -> None:
    setup.init(bare)
    with bare.engine.begin() as connection:
        context = MigrationContext.configure(connection)
        with Operations.context(context):
            fifth.downgrade()
            fourth.downgrade()
            third.downgrade()
            second.downgrade()
    _set_version(bare, "0001")
    assert setup.init(bare) == setup.HEAD
    with bare.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"include_object": _is_ours})
        assert compare_metadata(context, metadata) == []


def test_doing_it_twice_changes_nothing(bare: Store) -> None:
    assert setup.init(bare) == setup.init(bare) == setup.version(bare) == setup.HEAD
    setup.check(bare)


def test_many_may_init_at_once(bare: Store) -> None:
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: setup.init(bare), range(4))) == {setup.HEAD}


def test_a_store_without_tables_names_the_command(bare: Store) -> None:
    with pytest.raises(StoreError, match="celery -A shop argus init"):
        setup.check(bare)


def test_the_embedded_default_is_made_by_itself(bare: Store) -> None:
    setup.make(bare)
    assert setup.version(bare) == setup.HEAD


def test_an_older_version_names_the_command(bare: Store) -> None:
    setup.init(bare)
    _set_version(bare, "0000")
    with pytest.raises(StoreError, match=r"version 0000.*celery -A shop argus init"):
        setup.check(bare)


def test_a_newer_version_serves_an_older_worker_beside_it(bare: Store) -> None:
    setup.init(bare)
    _set_version(bare, "9999")
    setup.check(bare)


def test_another_apps_store_is_refused(bare: Store, store_url: str) -> None:
    setup.init(bare)
    other = Store(store_url, app_name="bakery")
    with pytest.raises(StoreError, match=r"belongs to the app 'shop', .* Celery\('shop'\)"):
        setup.check(other)
    other.dispose()


def _set_version(store: Store, version: str) -> None:
    with store.engine.begin() as connection:
        connection.execute(sa.text("UPDATE argus_version SET version_num = :version"), {"version": version})


def _is_ours(thing: object, name: str | None, kind: str, reflected: bool, other: object) -> bool:
    return kind != "table" or name != "argus_version"


def _column(column: sa.Column[Any]) -> tuple[object, ...]:
    return repr(column.type), column.nullable, column.primary_key


def _described(tables: sa.MetaData) -> dict[str, tuple[dict[str, object], list[object]]]:
    return {
        table.name: (
            {column.name: _column(column) for column in table.columns},
            sorted((str(index.name), [column.name for column in index.columns]) for index in table.indexes),
        )
        for table in tables.sorted_tables
    }
