"""``using=``: a task is part of Django's transaction, and is published when Django has committed it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from argus_celery import current
from argus_celery.errors import BadTransaction, LeaseLost
from argus_celery.store import setup
from tests.integration.embedded import Shop
from tests.neighbours.conftest import bodies, lose_lease, new_shop

django = pytest.importorskip("django")
from django.conf import settings  # noqa: E402
from django.db import IntegrityError, connections, transaction  # noqa: E402

MODULES = {"sqlite": "sqlite3", "postgresql": "postgresql", "mysql": "mysql"}


@pytest.fixture
def made(store_url: str) -> Iterator[Shop]:
    """The store, the broker and Django's database "shop" are one; Django has no other way to MariaDB than PyMySQL."""
    made = new_shop(store_url)
    setup.init(made.argus.runtime.store)
    made.argus.project("p")
    bodies(made)
    if not settings.configured:
        settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})
        django.setup()
    _add_database("shop", sa.make_url(store_url))
    with connections["shop"].cursor() as cursor:
        cursor.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    yield made
    connections["shop"].close()
    del connections["shop"], connections.settings["shop"]
    made.argus.runtime.store.dispose()


def _add_database(alias: str, url: sa.URL) -> None:
    kind = url.get_backend_name()
    if kind == "mysql":
        import pymysql

        pymysql.install_as_MySQLdb()
    place = {"USER": url.username, "PASSWORD": url.password, "HOST": url.host, "PORT": url.port}
    connections.settings |= connections.configure_settings(
        {
            "default": connections.settings["default"],
            alias: {"ENGINE": f"django.db.backends.{MODULES[kind]}", "NAME": url.database, **place},
        }
    )


def order(number: int) -> None:
    with connections["shop"].cursor() as cursor:
        cursor.execute(f"INSERT INTO orders VALUES ({number})")


def orders() -> list[int]:
    with connections["shop"].cursor() as cursor:
        cursor.execute("SELECT id FROM orders ORDER BY id")
        return [row[0] for row in cursor.fetchall()]


def in_broker(made: Shop) -> int:
    with made.app.connection_for_read() as connection:
        return int(connection.default_channel._size("q"))


def test_tasks_commit_and_roll_back_with_django(made: Shop) -> None:
    add, project = made.app.tasks["shop.add"], made.argus.project("p")
    with transaction.atomic(using="shop"):
        order(1)
        first = project.enqueue(add.s(1, 2), key="k", using="shop")
        project.enqueue_many([add.s(3, 4), add.s(5, 6)], using="shop")
        add.apply_async((7, 8), argus_using="shop", argus_project="made in the transaction")
        assert made.names() == []
    assert (made.names(), in_broker(made), orders()) == (["add"] * 4, 4, [1])
    with transaction.atomic(using="shop"):
        order(2)
        assert project.enqueue(add.s(1, 2), key="k", using="shop").id == first.id
        with transaction.atomic(using="shop"):
            add.apply_async((0, 0), argus_using="shop")
            transaction.set_rollback(True, using="shop")
    with transaction.atomic(using="shop"):
        order(3)
        project.enqueue(add.s(0, 0), using="shop")
        transaction.set_rollback(True, using="shop")
    assert (made.names(), in_broker(made), orders()) == (["add"] * 4, 4, [1, 2])
    with made.worker():
        made.drained()
    assert sorted(made.log) == [(1, 2), (3, 4), (5, 6), (7, 8)]


def test_what_comes_after_others_commits_and_rolls_back_with_django(made: Shop) -> None:
    add, project = made.app.tasks["shop.add"], made.argus.project("p")
    early = project.enqueue(add.s(1, 0))
    with transaction.atomic(using="shop"):
        order(1)
        first = project.enqueue(add.s(2, 0), key="k", using="shop")
        child = project.enqueue(add.s(3, 0), after=[early, "k"], using="shop")
        (many,) = project.enqueue_many([add.s(4, 0).set(argus_after=[first, child])], using="shop")
        add.apply_async((5, 0), argus_after=many, argus_using="shop", argus_project="p")
        assert made.names() == ["add"]
    with transaction.atomic(using="shop"):
        project.enqueue(add.s(0, 0), after=[early, many], using="shop")
        transaction.set_rollback(True, using="shop")
    assert (len(made.names()), in_broker(made), orders()) == (5, 2, [1])
    with made.worker():
        made.drained()
    began = [number for number, _ in made.log]
    assert sorted(began[:2]) == [1, 2]
    assert began[2:] == [3, 4, 5]


def test_a_guarded_transaction_of_djangos_commits_only_while_the_lease_is_held(made: Shop) -> None:
    """The first run of the task loses its lease before its commit, and is told by it."""

    @made.app.task(shared=False, name="shop.guarded")
    def guarded() -> None:
        number = 2 if made.log else 1
        try:
            with transaction.atomic(using="shop"):
                current.guard(using="shop")
                order(100)
                transaction.set_rollback(True, using="shop")
            if number == 1:
                lose_lease(made)
            with transaction.atomic(using="shop"):
                with transaction.atomic(using="shop"), current.guard(using="shop"):
                    order(number)
                transaction.on_commit(lambda: made.log.append(f"committed {number}"), using="shop")
            order(10 + number)
        except LeaseLost:
            made.log.append(f"lost {number}")
            assert orders() == []
            assert connections["shop"].get_autocommit()
            raise
        finally:
            assert not {"commit", "rollback", "close"} & connections["shop"].__dict__.keys()
            connections["shop"].close()

    guarded.delay()
    with made.worker():
        made.drained()
    assert (made.log, orders()) == (["lost 1", "committed 2"], [2, 12])


def test_a_guard_outside_of_atomic_is_refused(made: Shop) -> None:
    refused: list[str] = []

    @made.app.task(shared=False, name="shop.guarded")
    def guarded() -> None:
        with pytest.raises(BadTransaction, match="inside transaction"):
            current.guard(using="shop")
        with transaction.atomic(), pytest.raises(BadTransaction, match="another database"):
            current.guard(using="default")
        refused.append("both")
        connections.close_all()

    guarded.delay()
    with made.worker():
        made.drained()
    assert refused == ["both"]


def test_outside_of_atomic_a_task_commits_by_itself_and_djangos_connection_stays_as_it_was(made: Shop) -> None:
    project, add = made.argus.project("p"), made.app.tasks["shop.add"]
    project.enqueue(add.s(1, 2), using="shop")
    assert (made.names(), in_broker(made)) == (["add"], 1)
    connection = connections["shop"]
    assert connection.get_autocommit()
    assert not connection.in_atomic_block
    order(1)
    with pytest.raises(IntegrityError), transaction.atomic(using="shop"):
        assert project.enqueue(add.s(3, 4), using="shop") and order(1)
    assert made.names() == ["add"]
    if connection.vendor == "sqlite":  # SQLAlchemy's own way to connect would give it another REGEXP
        with connection.cursor() as cursor:
            cursor.execute("SELECT 'ab' REGEXP 'b$'")
            assert cursor.fetchone() == (1,)


def test_another_database_of_djangos_and_an_unknown_one_are_refused(sqlite_store_url: str) -> None:
    shop = new_shop(sqlite_store_url)
    add = bodies(shop)["add"]
    if not settings.configured:
        settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})
        django.setup()
    with transaction.atomic(), pytest.raises(BadTransaction, match="in another database"):
        add.apply_async((1, 2), argus_using="default")
    with pytest.raises(BadTransaction, match="names no database of Django's"):
        add.apply_async((1, 2), argus_using="defualt")
    assert shop.rows() == {}


def test_without_django_its_name_is_told(sqlite_store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    add = bodies(new_shop(sqlite_store_url))["add"]
    monkeypatch.setitem(sys.modules, "django.core.exceptions", None)
    with pytest.raises(BadTransaction, match="not installed"):
        add.apply_async((1, 2), argus_using="default")
