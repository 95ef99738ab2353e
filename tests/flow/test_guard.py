"""``current.guard``: transactions of the user's own commit only while the run holds its lease, on every database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from argus_celery.context import current
from argus_celery.errors import BadTransaction, LeaseLost
from argus_celery.flow.complete import complete
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.renew import renew
from argus_celery.records import Claim, Outcome, TaskState
from argus_celery.run import Run, in_hand
from argus_celery.store.setup import HEAD
from tests.flow.conftest import FlowBench
from tests.store.bench import counted

Handle = Callable[[sa.Engine], Any]


@pytest.fixture
def user(bench: FlowBench) -> Iterator[sa.Engine]:
    """The user's own engine on the store's database, with a table of theirs."""
    engine = sa.create_engine(bench.store.url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE effects (tag VARCHAR(36))")
        connection.exec_driver_sql("CREATE TABLE argus_version (version_num VARCHAR(32))")
        connection.exec_driver_sql(f"INSERT INTO argus_version VALUES ('{HEAD}')")
    yield engine
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE effects")
        connection.exec_driver_sql("DROP TABLE argus_version")
    engine.dispose()


@pytest.fixture
def run(bench: FlowBench) -> Iterator[Run]:
    """This code is the body of a run."""
    run = Run(bench.rt, bench.running())
    token = in_hand.set(run)
    yield run
    in_hand.reset(token)


def effect(handle: Any, tag: str) -> None:
    handle.execute(sa.text("INSERT INTO effects VALUES (:tag)"), {"tag": tag})


def effects(user: sa.Engine) -> list[str]:
    with user.connect() as connection:
        return list(connection.scalars(sa.text("SELECT tag FROM effects ORDER BY tag")))


def taken_over(bench: FlowBench, run: Run) -> Claim:
    """Another has the task by now."""
    bench.pass_time(7)
    dispatch(bench.rt)
    other = bench.claim("w2", run.claim.task_id)
    assert other is not None
    return other


HANDLES = [
    pytest.param(lambda user: user.connect(), id="connection"),
    pytest.param(lambda user: Session(user), id="session"),
    pytest.param(lambda user: scoped_session(sessionmaker(user)), id="scoped"),
    pytest.param(lambda user: Session(user.connect()), id="session on a connection"),
]


@pytest.mark.parametrize("made", HANDLES)
def test_what_is_guarded_commits_while_the_lease_is_held_and_not_behind_it(
    bench: FlowBench, user: sa.Engine, run: Run, made: Handle
) -> None:
    handle = made(user)
    current.guard(handle)
    effect(handle, "held")
    handle.commit()
    effect(handle, "held in the next transaction")
    handle.commit()
    effect(handle, "stale")
    if bench.store.dialect_name == "sqlite":
        handle.rollback()  # there nobody could take it over meanwhile
    taken_over(bench, run)
    if bench.store.dialect_name == "sqlite":
        effect(handle, "stale")
    with pytest.raises(LeaseLost, match=run.claim.task_id):
        handle.commit()
    assert run.lost.is_set()
    handle.rollback()
    handle.close()
    assert effects(user) == ["held", "held in the next transaction"]


def test_the_locks_of_a_refused_commit_are_free_though_the_user_has_not_rolled_back(
    bench: FlowBench, user: sa.Engine, run: Run
) -> None:
    taken_over(bench, run)
    with user.connect() as connection:
        current.guard(connection)
        effect(connection, "stale")
        with pytest.raises(LeaseLost):
            connection.commit()
        with user.begin() as other:
            other.exec_driver_sql("DELETE FROM effects")
    assert effects(user) == []


def test_a_guarded_session_cannot_commit_inside_the_runs_own_transaction(user: sa.Engine, run: Run) -> None:
    """That has locked the lease: the commit would wait for itself."""
    with user.connect() as session, current.guard(session):
        session.execute(sa.text("SELECT tag FROM effects")).all()
        with pytest.raises(BadTransaction, match="commit it behind the block"), current.transaction():
            session.commit()
    with current.transaction() as connection, current.guard(connection):
        effect(connection, "by its own connection")
    assert effects(user) == ["by its own connection"]


def test_an_open_transaction_and_a_take_over_are_never_both_done(bench: FlowBench, user: sa.Engine) -> None:
    """The runs of both write under guard and commit at once: it is the new one's or the old one's, and then the other
    finds out."""

    def write(claim: Claim, tag: str) -> bool:
        run = Run(bench.rt, claim)
        token = in_hand.set(run)
        try:
            with Session(user) as session, current.guard(session):
                effect(session, tag)
                session.commit()
                return True
        except LeaseLost:
            return False
        finally:
            in_hand.reset(token)

    def take_over(task_id: str) -> Claim | None:
        dispatch(bench.rt)
        return bench.claim("w2", task_id)

    for number in range(6):
        old = bench.running()
        bench.pass_time(7)
        with ThreadPoolExecutor(2) as pool:
            first, second = pool.submit(write, old, f"old {number}"), pool.submit(take_over, old.task_id)
            was_first, new = first.result(timeout=60), second.result(timeout=60)
        if new is not None:
            assert write(new, f"new {number}")
            complete(bench.rt, new, Outcome(TaskState.SUCCEEDED))
        else:
            complete(bench.rt, old, Outcome(TaskState.SUCCEEDED))
        if was_first:
            assert f"old {number}" in effects(user)
        else:
            assert new is not None
            assert f"old {number}" not in effects(user)


def test_a_take_over_waits_for_a_commit_that_has_locked_the_lease(bench: FlowBench, user: sa.Engine, run: Run) -> None:
    if bench.store.dialect_name == "sqlite":
        return  # the user is the only writer from the first write on
    bench.pass_time(7)
    with user.connect() as connection:
        current.guard(connection)

        @sa.event.listens_for(connection, "commit")
        def committing(_: sa.Connection) -> None:
            assert not dispatch(bench.rt).dispatched  # it is due, and locked

        effect(connection, "first")
        connection.commit()
    assert effects(user) == ["first"]
    assert not dispatch(bench.rt).dispatched  # and it is not due any more


def test_a_run_that_has_ended_commits_nothing_from_a_thread_it_has_left(
    bench: FlowBench, user: sa.Engine, run: Run
) -> None:
    with Session(user) as session:
        current.guard(session)
        complete(bench.rt, run.claim, Outcome(TaskState.SUCCEEDED))
        run.ended = True
        effect(session, "late")
        with pytest.raises(LeaseLost):
            session.commit()
    assert effects(user) == []


def test_whoever_uses_the_session_after_the_run_is_not_guarded_by_it(
    bench: FlowBench, user: sa.Engine, run: Run
) -> None:
    with Session(user) as session, user.connect() as connection:
        current.guard(session)
        current.guard(connection)
        complete(bench.rt, run.claim, Outcome(TaskState.SUCCEEDED))
        run.ended = True
        token = in_hand.set(None)
        effect(session, "after it")
        session.commit()
        effect(connection, "after it")
        connection.commit()
        in_hand.reset(token)
    assert effects(user) == ["after it"] * 2


def test_behind_the_block_nothing_is_guarded_but_what_has_begun_in_it(
    bench: FlowBench, user: sa.Engine, run: Run
) -> None:
    taken_over(bench, run)
    with user.connect() as connection:
        with current.guard(connection) as same:
            assert same is connection
            effect(connection, "begun inside")
        with pytest.raises(LeaseLost):
            connection.commit()
        connection.rollback()
        effect(connection, "behind")
        connection.commit()
    with Session(user) as session:
        with current.guard(session):
            pass
        effect(session, "behind")
        session.commit()
    assert effects(user) == ["behind"] * 2


def test_the_lease_is_asked_for_once_in_a_transaction(bench: FlowBench, user: sa.Engine, run: Run) -> None:
    asked: list[str] = []

    @sa.event.listens_for(user, "before_cursor_execute")
    def sent(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        asked.extend([statement] if "argus_leases" in statement else [])

    with Session(user) as session:
        current.guard(session)  # which looks, once for an engine, whether it is the store's database
        effect(session, "first")
        session.commit()
        asked.clear()
        current.guard(session)
        with current.guard(session), counted(bench.store) as count:
            effect(session, "second")
            with session.begin_nested():
                effect(session, "third")
            session.commit()
    assert (len(asked), count.statements) == (1, 0)
    assert effects(user) == ["first", "second", "third"]


def test_a_guard_does_not_begin_the_transaction_that_the_user_begins(
    bench: FlowBench, user: sa.Engine, run: Run
) -> None:
    with user.connect() as connection, Session(user) as session:
        current.guard(connection)
        current.guard(session)
        with connection.begin():
            effect(connection, "a")
        with session.begin():
            effect(session, "b")
    assert effects(user) == ["a", "b"]


def test_a_transaction_that_was_rolled_back_owes_nothing(bench: FlowBench, user: sa.Engine, run: Run) -> None:
    with user.connect() as connection:
        with current.guard(connection):
            effect(connection, "undone")
            connection.rollback()
        taken_over(bench, run)
        effect(connection, "unguarded")
        connection.commit()
    assert effects(user) == ["unguarded"]


def test_a_transaction_that_sees_the_state_before_a_renewal_is_refused_by_the_database(
    bench: FlowBench, user: sa.Engine, run: Run
) -> None:
    if bench.store.dialect_name != "postgresql":
        return  # MariaDB locks what is there now, and SQLite has one writer
    with user.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        current.guard(connection)
        effect(connection, "too old")
        renew(bench.rt, "w1", [(run.claim.task_id, run.claim.token)])
        with pytest.raises(sa.exc.OperationalError, match="could not serialize"):
            connection.commit()
    assert effects(user) == []


def test_two_phases_are_guarded_at_the_first(bench: FlowBench, user: sa.Engine, run: Run) -> None:
    if bench.store.dialect_name != "mysql":
        return  # SQLite has none, and PostgreSQL as it is installed allows none
    for prepared in (True, False):
        with user.connect() as connection:
            current.guard(connection)
            transaction = connection.begin_twophase()
            effect(connection, "held")
            if prepared:
                transaction.prepare()
            transaction.commit()
    taken_over(bench, run)
    with user.connect() as connection:
        current.guard(connection)
        transaction = connection.begin_twophase()
        effect(connection, "stale")
        with pytest.raises(LeaseLost):
            transaction.prepare()
        transaction.rollback()
    assert effects(user) == ["held"] * 2


def test_what_cannot_be_guarded_is_refused(bench: FlowBench, user: sa.Engine, run: Run, tmp_path: Path) -> None:
    elsewhere = sa.create_engine(f"sqlite:///{tmp_path / 'other.db'}")
    for handle in (elsewhere.connect(), Session(elsewhere)):
        with pytest.raises(BadTransaction, match="another database than the store"):
            current.guard(handle)
        handle.close()
    with (
        user.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
        pytest.raises(BadTransaction, match="AUTOCOMMIT"),
    ):
        current.guard(connection)
    with pytest.raises(BadTransaction, match="not Engine"):
        current.guard(user)
    with pytest.raises(BadTransaction, match="give one of them"):
        current.guard()
    with Session() as unbound, pytest.raises(BadTransaction, match="more than one database"):
        current.guard(unbound)
    elsewhere.dispose()


def test_a_session_that_turns_to_another_database_is_refused_at_its_commit(
    bench: FlowBench, user: sa.Engine, run: Run, tmp_path: Path
) -> None:
    elsewhere = sa.create_engine(f"sqlite:///{tmp_path / 'other.db'}")
    with Session(user) as session:
        current.guard(session)
        session.bind = elsewhere
        session.execute(sa.text("CREATE TABLE effects (tag VARCHAR(36))"))
        with pytest.raises(BadTransaction, match="another database"):
            session.commit()
    elsewhere.dispose()


def test_without_a_claim_nothing_is_guarded(bench: FlowBench, user: sa.Engine) -> None:
    with Session(user) as session, current.guard(session) as same:
        assert same is session
        effect(session, "eager")
        session.commit()
    assert effects(user) == ["eager"]
