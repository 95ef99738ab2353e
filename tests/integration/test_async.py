"""Projects for asyncio: nothing blocks the event loop, and an asynchronous session's transaction takes tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.ext.asyncio import create_async_engine as create
from sqlalchemy.orm import Session

from argus_celery import current, durable
from argus_celery.errors import BadTask, BadTransaction, LeaseLost, ProjectClosed
from argus_celery.records import ProjectStatus
from argus_celery.store import setup
from tests.integration.embedded import Shop, shop, until
from tests.neighbours.conftest import lose_lease

STORES = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
"""Those for which a driver is at hand that asyncio can use."""


@pytest.fixture(params=STORES)
def made(request: pytest.FixtureRequest) -> Iterator[Shop]:
    url = request.getfixturevalue(f"{request.param}_store_url")
    made = shop(url, f"argus+{url}", dispatch_ttl=60, dispatch_ttl_max=60)
    setup.init(made.argus.runtime.store)
    with made.argus.runtime.store.engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE orders (id INTEGER PRIMARY KEY)")

    @durable
    @made.app.task(shared=False, name="shop.add")
    def add(x: int, y: int) -> int:
        made.log.append((x, y))
        return x + y

    yield made
    made.argus.runtime.store.dispose()


def run(made: Shop, body: Callable[[AsyncEngine], Awaitable[Any]]) -> Any:
    return asyncio.run(with_engine(made, body))


async def with_engine(made: Shop, body: Callable[[AsyncEngine], Awaitable[Any]]) -> Any:
    engine = create(sa.make_url(str(made.argus.settings.store_url).replace("sqlite:", "sqlite+aiosqlite:")))
    try:
        return await asyncio.wait_for(body(engine), 20)
    finally:
        await engine.dispose()


@contextmanager
def held(made: Shop) -> Iterator[Callable[[], None]]:
    """The store keeps everybody waiting until this is called."""
    with made.argus.runtime.store.engine.connect() as connection:  # which has SQLite's write lock
        if made.argus.runtime.store.dialect_name == "postgresql":
            connection.exec_driver_sql("LOCK TABLE argus_projects, argus_queues, argus_leases")
        else:
            connection.exec_driver_sql("SELECT 1")
        yield connection.rollback


async def with_loop_running(made: Shop, call: Awaitable[Any]) -> Any:
    """The call's result, which is there only if the loop goes on while the call waits for the store."""
    with held(made) as let_go:
        waiting = asyncio.ensure_future(call)
        await asyncio.wait([waiting], timeout=0.2)
        assert not waiting.done()
        let_go()
        return await waiting


def test_no_call_blocks_the_event_loop(made: Shop) -> None:
    async def body(engine: AsyncEngine) -> None:
        add = made.app.tasks["shop.add"]
        project = await with_loop_running(made, made.argus.aproject("p"))
        first = await with_loop_running(made, project.aenqueue(add.s(1, 2), "k"))
        many = await with_loop_running(made, project.aenqueue_many(add.s(n, 0) for n in (3, 4)))
        assert (await project.aenqueue(add.s(1, 2), key="k")).id == first.id
        assert set(made.rows()) == {first.id, *(one.id for one in many)}
        async with AsyncSession(engine) as session:
            await with_loop_running(made, project.aenqueue(add.s(5, 0).set(queue="new"), session=session))
            await session.commit()
        assert (await project.aprogress()).total == 4

    run(made, body)


def test_a_task_is_part_of_an_asynchronous_transaction(made: Shop) -> None:
    order = sa.text("INSERT INTO orders VALUES (1)")

    async def body(engine: AsyncEngine) -> None:
        project, add = await made.argus.aproject("p"), made.app.tasks["shop.add"]
        async with AsyncSession(engine) as session:
            first = await project.aenqueue(add.s(1, 2), "k", session=session)
            await session.execute(order)
            assert made.rows() == {}
            await session.commit()
            assert list(made.rows()) == [first.id]
            assert (await project.aenqueue(add.s(1, 2), "k", session=session)).id == first.id
            await project.aenqueue(add.s(0, 0) | add.s(0), session=session)
            await session.rollback()
        async with engine.connect() as connection:
            await project.aenqueue_many([add.s(3, 4), add.s(5, 6)], session=connection)
            await connection.commit()
        async with AsyncSession(engine) as session:
            await project.aenqueue(add.s(9, 9), after=[first, "k"], session=session)
            await session.rollback()
            last = await project.aenqueue(add.s(8, 9), after=first, if_failed="run", session=session)
            await session.commit()
        assert made.task(last.id).waits_for == (first.id,)
        assert (await project.aenqueue(add.s(9, 10), after=[last])).id != last.id
        with pytest.raises(BadTask, match="is to come after 'nobody'"):
            await project.aenqueue(add.s(0, 0), after="nobody")
        scoped = async_scoped_session(async_sessionmaker(engine), scopefunc=asyncio.current_task)
        await project.aenqueue(add.s(7, 8), session=scoped)
        await scoped.commit()
        await scoped.remove()
        project.close()
        with pytest.raises(ProjectClosed):
            async with AsyncSession(engine) as session, session.begin():
                await project.aenqueue(add.s(0, 0), session=session)
        with pytest.raises(TimeoutError):
            await project.ajoin(0)
        with made.worker():
            assert await project.ajoin(15) is ProjectStatus.COMPLETED

    run(made, body)
    assert sorted(made.log) == [(1, 2), (3, 4), (5, 6), (7, 8), (8, 9), (9, 10)]
    assert made.log.index((1, 2)) < made.log.index((8, 9)) < made.log.index((9, 10))


def test_a_call_that_is_cancelled_has_let_go_of_the_session(made: Shop) -> None:
    async def body(engine: AsyncEngine) -> None:
        project, add = await made.argus.aproject("p"), made.app.tasks["shop.add"]
        async with AsyncSession(engine) as session:
            with held(made) as let_go:
                call = asyncio.ensure_future(project.aenqueue(add.s(1, 2), session=session))
                await asyncio.wait([call], timeout=0.2)
                call.cancel()
                await asyncio.wait([call], timeout=0.2)
                assert not call.done()
                let_go()
                with pytest.raises(asyncio.CancelledError):
                    await call
            await session.rollback()
        assert made.rows() == {}

    run(made, body)


def test_a_body_that_runs_a_loop_has_its_children_as_any_other(sqlite_store_url: str) -> None:
    made = shop(sqlite_store_url, f"argus+{sqlite_store_url}", durable_tasks=["shop.*"])

    @made.app.task(shared=False, name="shop.child")
    def child() -> None: ...

    @made.app.task(shared=False, name="shop.parent")
    def parent() -> None:
        asyncio.run(made.argus.project("p").aenqueue(child.s()))

    result = made.argus.project("p").enqueue(parent.s())
    with made.worker():
        made.drained()
    (row,) = (row for row in made.rows().values() if row.name == "shop.child")
    assert (row.parent_id, row.root_id) == (result.id, result.id)
    assert row.id[14] == "5"  # derived, so that a run that is repeated enqueues it once


def test_a_session_of_the_other_kind_is_refused(made: Shop) -> None:
    async def body(engine: AsyncEngine) -> None:
        project, add = await made.argus.aproject("p"), made.app.tasks["shop.add"]
        with pytest.raises(BadTransaction, match="call enqueue"):
            await project.aenqueue(add.s(1, 2), session=Session(made.argus.runtime.store.engine))
        async with AsyncSession(engine) as session:
            with pytest.raises(BadTransaction, match="await project"):
                project.enqueue(add.s(1, 2), session=session)

    run(made, body)
    until(lambda: made.rows() == {})


@pytest.mark.parametrize("kind", ["session", "scoped", "connection", "coroutine"])
def test_a_guarded_asynchronous_transaction_commits_only_while_the_lease_is_held(made: Shop, kind: str) -> None:
    """The first run of the task loses its lease before its commit, and is told by it."""

    async def write(handle: Any) -> None:
        await handle.execute(sa.text(f"INSERT INTO orders VALUES ({2 if made.log else 1})"))
        try:
            await handle.commit()
        except LeaseLost:
            made.log.append("lost")
            await handle.rollback()
            raise

    async def body(engine: AsyncEngine) -> None:
        if kind == "connection":
            async with engine.connect() as connection:
                with current.guard(connection):
                    await write(connection)
            return
        factory = async_sessionmaker(engine)
        session: Any = async_scoped_session(factory, asyncio.current_task) if kind == "scoped" else factory()
        current.guard(session)
        await write(session)
        await session.close()

    def guarded() -> None:
        if not made.log:
            lose_lease(made)
        run(made, body)

    async def guarded_coroutine() -> None:
        if not made.log:
            await asyncio.to_thread(lose_lease, made)
        await with_engine(made, body)

    task = guarded_coroutine if kind == "coroutine" else guarded
    durable(made.app.task(task, shared=False, name="shop.guarded")).delay()
    with made.worker():
        made.drained()
    assert made.log == ["lost"]
    with made.argus.runtime.store.engine.connect() as connection:
        assert list(connection.scalars(sa.text("SELECT id FROM orders"))) == [2]
