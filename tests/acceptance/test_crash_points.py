"""The examples are killed at one durable point after another, on three databases: nothing is different, or done twice.

Beside what has been committed, a point is what a body has done and not recorded yet: a request that was answered, or
a write in a transaction that is still open.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from argus_celery.testing.killing import Killing, Report
from argus_celery.testing.ledger import Ledger
from argus_celery.testing.watching import EFFECT, POINTS
from examples.agent import app as agent
from examples.agent import tables, world
from examples.agent.world import World
from examples.crawl import app as crawler
from examples.crawl import fetch, pages
from examples.crawl.site import Site

BUDGET = 20_000

pytestmark = pytest.mark.timeout(3600)


@pytest.fixture
def argus_store_url(store_url: str) -> str:
    return store_url


@pytest.fixture
def kill(kill_after: Killing, most: int | None, capsys: pytest.CaptureFixture[str]) -> Callable[..., Report]:
    """At each kind of point."""

    def killed(task: Any, argument: str, **options: Any) -> Report:
        report = kill_after(task, [argument], points=[*POINTS, EFFECT], most=most, timeout=120, **options)
        with capsys.disabled():
            print(f"\n{task.name}: killed at {len(report.trials)} of {len(report.points)} points")
        return report

    return killed


@pytest.fixture
def deadly(monkeypatch: pytest.MonkeyPatch, ledger: Ledger) -> Callable[[Any, str], None]:
    """What follows a call of this function at once is a point."""

    def make(module: Any, name: str) -> None:
        function = getattr(module, name)

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            value = function(*args, **kwargs)
            ledger.after((name,))
            return value

        monkeypatch.setattr(module, name, wrapped)

    return make


class Outside(World):
    """What happens in this world is noted in the ledger of the life in hand."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self.ledger = ledger

    def act(self, what: str, body: dict[str, Any], key: str) -> Any:
        before = len(self.effects)
        answer = super().act(what, body, key)
        for _ in self.effects[before:]:
            self.ledger.write(what, sorted(body.items()))
        return answer


def test_the_agent(
    kill: Callable[..., Report],
    deadly: Callable[[Any, str], None],
    ledger: Ledger,
    store_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module, name in ((world, "_ask"), (tables, "take"), (tables, "give_back"), (tables, "ship")):
        deadly(module, name)
    engine = sa.create_engine(store_url, poolclass=sa.NullPool)
    c = tables.budgets.c

    def prepare() -> None:
        with engine.begin() as connection:
            tables.metadata.drop_all(connection)
            tables.make(connection, dict.fromkeys(world.ITEMS, 10))
            tables.grant(connection, "default", BUDGET)
            tables.grant(connection, "of earlier lives", outside.tokens)

    def state() -> Any:
        with engine.connect() as connection:
            parcels = connection.execute(sa.select(tables.parcels.c.order_id, tables.parcels.c.item)).all()
            stock = connection.execute(sa.select(tables.stock).order_by(tables.stock.c.item)).all()
            (_, total, spent), (_, earlier, _) = connection.execute(sa.select(tables.budgets).order_by(c.project)).all()
        within = outside.tokens - earlier <= spent <= total == BUDGET
        return {"parcels": [*map(tuple, parcels)], "stock": [*map(tuple, stock)], "within budget": within}

    def allow() -> None:
        agent.argus.project("default").send("refund 7", True)

    with Outside(ledger) as outside:
        monkeypatch.setenv("AGENT_WORLD", outside.url)
        report = kill(agent.answer, "Order 7 came broken.", prepare=prepare, idle=allow, state=state)
    assert report.result == "Order 7: 497 cents are refunded, and one chair is on its way."
    assert [effect[0] for effect in report.undisturbed.effects] == ["refunds", "mails"]
    stock = [("chair", 9), ("clock", 10), ("lamp", 10)]
    assert report.undisturbed.state == {"parcels": [(7, "chair")], "stock": stock, "within budget": True}


def test_the_crawl(kill: Callable[..., Report], deadly: Callable[[Any, str], None], store_url: str) -> None:
    for module, name in ((fetch, "_read"), (pages, "save")):
        deadly(module, name)
    engine = sa.create_engine(store_url, poolclass=sa.NullPool)

    def prepare() -> None:
        with engine.begin() as connection:
            pages.metadata.drop_all(connection)
            pages.metadata.create_all(connection)

    def state() -> Any:
        with engine.connect() as connection:
            return sorted(pages.saved(connection).items())

    with Site(13) as site:
        report = kill(crawler.crawl, f"{site.url}/", prepare=prepare, state=state)
    urls = sorted(f"{site.url}/{name}" for name in ("", "gone", *range(1, 13)))
    assert report.undisturbed.state == [(url, 1) for url in urls]
    assert report.result["pages"] == 13 and report.result["broken"] == [f"{site.url}/gone"]
