"""``argus prune``, called as click calls it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from celery import Celery
from click.testing import CliRunner, Result

from argus_celery import Argus
from argus_celery.cli import argus as group
from argus_celery.flow.revoke import revoke
from argus_celery.store import reports
from argus_celery.store.schema import tasks


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Argus]:
    """Two projects, of which one was cancelled, with a task each."""
    app = Celery("shop", broker="memory://", set_as_current=False)
    argus = Argus(app, store=f"sqlite:///{tmp_path}/shop.db")

    @argus.durable
    @app.task(name="charge", shared=False)
    def charge(order: int) -> int:
        return order

    for name in ("import", "export"):
        argus.project(name).enqueue(charge.s(1))
    argus.project("import").cancel()
    revoke(argus.runtime, ["later"])
    yield argus
    argus.runtime.store.dispose()


def run(shop: Argus, *arguments: str) -> Result:
    return CliRunner().invoke(group, ["prune", *arguments], obj=SimpleNamespace(app=shop.app))


def count(shop: Argus) -> int:
    query: Any = sa.select(sa.func.count()).select_from(tasks)
    return int(shop.runtime.store.statement(lambda connection: connection.execute(query).scalar_one()))


def test_what_is_past_the_retention_goes_and_younger_things_stay(shop: Argus) -> None:
    kept = run(shop, "--yes")
    assert (kept.exit_code, count(shop)) == (0, 2), kept.output
    assert kept.output == "dropped 0 projects, 0 tasks, 0 chords, 0 groups, 0 revocations\n"
    shop.runtime.store.clock_shift = 8 * 24 * 3600 * 1000
    dropped = run(shop, "--yes")
    assert dropped.output == "dropped 1 project, 1 task, 0 chords, 0 groups, 1 revocation\n"
    assert count(shop) == 1


def test_an_age_may_be_named_and_looked_at_first(shop: Argus) -> None:
    shop.runtime.store.clock_shift = 3600 * 1000 + 1000
    assert json.loads(run(shop, "--dry-run", "--older-than", "2h", "--json").output)["tasks"] == 0
    seen = json.loads(run(shop, "--dry-run", "--older-than", "60m", "--json").output)
    assert (seen["projects"], seen["tasks"], count(shop)) == (1, 1, 2)
    assert json.loads(run(shop, "--yes", "--older-than", "1h", "--json").output)["tasks"] == 1


def test_without_a_terminal_it_wants_a_yes(shop: Argus) -> None:
    refused = run(shop, "--older-than", "0s")
    assert (refused.exit_code, count(shop)) == (1, 2)
    assert "Drop 1 project, 1 task for good?" in refused.output
    assert "give --yes" in refused.output


@pytest.mark.parametrize("age", ["3", "3 days", "-1d", "d", "99999999999w"])
def test_a_time_that_is_none_is_refused(shop: Argus, age: str) -> None:
    refused = run(shop, "--yes", "--older-than", age)
    assert (refused.exit_code, count(shop)) == (2, 2)
    assert "is not a time such as 3d" in refused.output


def test_what_is_foreseen_is_what_goes(shop: Argus) -> None:
    """Neither the newest project, whose row stays, nor one that keeps a task that is owed."""
    shop.project("export").cancel()
    owed = shop.project("owed")
    task_id = owed.enqueue(shop.app.tasks["charge"].s(1)).id
    owed.cancel()
    shop.project("newest").cancel()
    owing: Any = sa.update(tasks).where(tasks.c.id == task_id).values(undelivered=1)
    shop.runtime.store.transaction(lambda connection: connection.execute(owing))
    assert run(shop, "--dry-run", "--older-than", "0s").output == "would drop 2 projects, 2 tasks\n"
    assert run(shop, "--yes", "--older-than", "0s").output.startswith("dropped 2 projects, 2 tasks, ")
    assert {one.name for one in reports.all_projects(shop.runtime.store)} == {"owed", "newest"}


def test_where_nothing_goes_it_does_not_ask(shop: Argus) -> None:
    nothing = run(shop)
    assert (nothing.exit_code, nothing.output) == (
        0,
        "dropped 0 projects, 0 tasks, 0 chords, 0 groups, 0 revocations\n",
    )
