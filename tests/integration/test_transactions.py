"""Calls of every kind in a transaction of the user's, on one SQLite file that is business data, store and broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import sqlalchemy as sa
from celery import chain, chord, group
from sqlalchemy.orm import Session

from argus_celery import current, durable
from argus_celery.errors import BadTask, BadTransaction
from argus_celery.records import TaskState
from argus_celery.store.outer.base import outside
from argus_celery.store.schema import leases
from tests.integration.embedded import Shop, shop, until


@pytest.fixture
def made(sqlite_store_url: str) -> Shop:
    # What is not published behind the commit is not seen within a test.
    made = shop(sqlite_store_url, f"argus+{sqlite_store_url}", dispatch_ttl=60, dispatch_ttl_max=60)
    made.argus.project("p", priority=3)

    @durable
    @made.app.task(shared=False, name="shop.add")
    def add(*numbers: Any) -> int:
        made.log.append(numbers)
        return sum(number if isinstance(number, int) else sum(number) for number in numbers)

    @made.app.task(shared=False, name="shop.plain")
    def plain(what: str) -> None:
        made.log.append(what)

    return made


@pytest.fixture
def engine(made: Shop, sqlite_store_url: str) -> Iterator[sa.Engine]:
    engine = sa.create_engine(sqlite_store_url, connect_args={"timeout": 1})  # nobody may wait for the user's lock
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    yield engine
    engine.dispose()


def call_in_every_way(made: Shop, session: Session) -> list[Any]:
    """Tasks in every kind of call; the results that tell that all has run."""
    add, project = made.app.tasks["shop.add"], made.argus.project("p")
    session.execute(sa.text("INSERT INTO orders (id) VALUES (NULL)"))
    return [
        project.enqueue(add.s(1), session=session),
        project.enqueue(add.s(2), key="k", session=session),
        *project.enqueue_many([add.s(3), add.s(4).set(argus_key="k4")], session=session),
        add.apply_async((5,), argus_session=session, argus_project="made in the transaction", queue="of its own"),
        project.enqueue(chain(add.s(6), add.s(60)), session=session),
        group(add.s(7), add.s(8)).apply_async(argus_session=session),
        chord([add.s(9), add.s(10)], add.s(90)).apply_async(argus_session=session),
        (add.s(11) | add.s(110)).apply_async(argus_session=session),
        made.app.tasks["shop.plain"].apply_async(("plain",), argus_session=session),
    ]


def test_calls_that_come_after_others_are_part_of_it_too(made: Shop, engine: sa.Engine) -> None:
    add, project = made.app.tasks["shop.add"], made.argus.project("p")
    early = project.enqueue(add.s(1))
    with Session(engine) as session:
        first = project.enqueue(add.s(2), key="k", session=session)
        chained = project.enqueue(chain(add.s(3), add.s(30)), after=[early, "k"], session=session)
        many = project.enqueue_many([add.s(4).set(argus_after=[first.id])], session=session)
        last = add.apply_async((5,), argus_project="p", argus_after=[chained.parent, *many], argus_session=session)
        with pytest.raises(BadTask, match="follows another task in a canvas"):
            project.enqueue(chain(add.s(6), add.s(7).set(argus_after=[first.id])), session=session)
        assert list(made.rows()) == [early.id]
        session.commit()
    with made.worker():
        made.drained()
    assert made.log.index((1,)) < made.log.index((3,)) < made.log.index((5,))
    assert made.log.index((2,)) < made.log.index((4,)) < made.log.index((5,))
    assert (chained.get(timeout=10), last.get(timeout=10)) == (33, 5)
    assert made.states() == {TaskState.SUCCEEDED}


def test_calls_of_every_kind_happen_with_the_commit(made: Shop, engine: sa.Engine) -> None:
    with Session(engine) as session:
        results = call_in_every_way(made, session)
        assert made.rows() == {}
        session.commit()
    with made.worker(queues=["celery", "of its own"]):
        made.drained()
        until(lambda: "plain" in made.log)
        assert [one.get(timeout=10) for one in results[:-1]] == [1, 2, 3, 4, 5, 66, [7, 8], 109, 121]
    assert made.task(results[4].id).project == "made in the transaction"
    assert made.states() == {TaskState.SUCCEEDED}


def test_calls_of_every_kind_do_not_happen_with_a_rollback(made: Shop, engine: sa.Engine) -> None:
    with Session(engine) as session:
        call_in_every_way(made, session)
        session.rollback()
        second = made.argus.project("p").enqueue(made.app.tasks["shop.add"].s(0), session=session)
        session.commit()
    with made.worker():
        made.drained()
    assert made.log == [(0,)]
    assert list(made.rows()) == [second.id]


def test_a_running_task_enqueues_in_its_own_transaction_once_though_it_is_repeated(made: Shop) -> None:
    @durable
    @made.app.task(shared=False, name="shop.parent", bind=True)
    def parent(self: Any) -> None:
        with current.transaction() as connection:
            made.app.tasks["shop.add"].apply_async((1,), argus_session=connection)
        made.log.append("parent")
        if made.log.count("parent") == 1:
            taken = sa.update(leases).where(leases.c.task_id == current.task_id)
            taken = taken.values(token=leases.c.token + 1, holder="", eligible_at=0)
            made.argus.runtime.store.statement(lambda connection: connection.execute(taken))
            current.check()

    made.app.tasks["shop.parent"].delay()
    with made.worker():
        made.drained()
    assert made.log.count((1,)) == 1
    assert made.names() == ["add", "parent"]


def test_what_a_body_calls_in_its_own_transaction_is_part_of_it(made: Shop) -> None:
    """Nothing of it waits for the transaction, which on SQLite keeps out every other writer."""
    add, plain, project = made.app.tasks["shop.add"], made.app.tasks["shop.plain"], made.argus.project("p")
    alone: list[Any] = []

    @durable
    @made.app.task(shared=False, name="shop.parent", bind=True)
    def parent(self: Any, fails: bool) -> None:
        with suppress(ZeroDivisionError), current.transaction():
            add.delay(1)
            project.enqueue(add.s(2), key=f"k{fails}")
            project.enqueue_many([add.s(3), add.s(4)])
            chain(add.s(5), add.s(50)).delay()
            group(add.s(6), add.s(7)).delay()
            chord([add.s(8), add.s(9)], add.s(80)).delay()
            plain.delay(f"plain {fails}")
            project.send(f"told {fails}", True)
            self.update_state(state="HALF")
            with made.argus.project("made in it"):
                add.delay(10)
            with outside():
                alone.append((made.names(), plain.name in made.log, self.AsyncResult(self.request.id).state))
            1 / (not fails)
        made.log.append(fails)
        if not fails:
            assert current.wait_for("told False") is True

    for fails in (True, False):
        project.enqueue(parent.s(fails))
        with made.worker():
            made.drained()
            until(lambda fails=fails: fails in made.log)
        if fails:
            assert made.names() == ["parent"]
    assert [one for one in alone if one[1:] != (False, "STARTED")] == []
    numbers = sorted(sum(entry) for entry in made.log if isinstance(entry, tuple) and isinstance(entry[0], int))
    assert numbers == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 55]
    until(lambda: "plain False" in made.log)
    assert "plain True" not in made.log


def test_two_transactions_at_once_are_refused(made: Shop, engine: sa.Engine) -> None:
    with Session(engine) as session, pytest.raises(BadTransaction, match="give one of them"):
        made.argus.project("p").enqueue(made.app.tasks["shop.add"].s(1), session=session, using="default")
    assert made.rows() == {}
