"""The agent of the examples: what its project may spend, and what a human has to say."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from argus_celery import Project
from argus_celery.records import ProjectStatus
from argus_celery.testing.stores import TestStore
from argus_celery.testing.workers import Workers
from examples.agent import app as agent
from examples.agent import tables
from examples.agent.world import ITEMS, MOST_TOKENS, World
from examples.workers import wait_for


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with World() as made:
        monkeypatch.setenv("AGENT_WORLD", made.url)
        yield made


@pytest.fixture
def engine(argus_store: TestStore) -> sa.Engine:
    made = sa.create_engine(argus_store.url, poolclass=sa.NullPool)
    with made.begin() as connection:
        tables.make(connection, dict.fromkeys(ITEMS, 10))
    return made


@pytest.fixture
def project(argus_worker: Workers, engine: sa.Engine) -> Project:
    return argus_worker(agent.app).project("letters", on_failure="pause")


def grant(engine: sa.Engine, tokens: int) -> None:
    with engine.begin() as connection:
        tables.grant(connection, "letters", tokens)


def parcels(engine: sa.Engine) -> list[int]:
    with engine.connect() as connection:
        return list(connection.execute(sa.select(tables.parcels.c.order_id)).scalars())


def test_a_project_out_of_tokens_pauses_and_goes_on_where_it_was_when_it_is_given_more(
    project: Project, engine: sa.Engine, world: World
) -> None:
    grant(engine, MOST_TOKENS + 200)
    project.send("refund 7", True)
    result = project.enqueue(agent.answer.s("Order 7 came broken."))
    with pytest.raises(Exception, match="has no 1000 tokens left"):
        result.get(timeout=60)
    wait_for(lambda: project.progress().paused, 60, "the project to pause")
    replies = world.replies
    assert 0 < replies < 4

    grant(engine, 2 * MOST_TOKENS)
    project.retry_failed()
    project.resume()
    project.close()
    assert project.join(timeout=60) is ProjectStatus.COMPLETED
    assert world.replies == 4
    assert (parcels(engine), [what for what, _ in world.effects]) == ([7], ["refunds", "mails"])


def test_a_refund_that_a_human_refuses_is_not_made(project: Project, engine: sa.Engine, world: World) -> None:
    grant(engine, 5 * MOST_TOKENS)
    result = project.enqueue(agent.answer.s("Order 7 came broken."))
    project.send("refund 7", False)
    assert result.get(timeout=60) == "Order 7: a human has refused it, and one chair is on its way."
    assert [what for what, _ in world.effects] == ["mails"]
