"""The pytest plugin for users' own tests: its fixtures, its option, and the page that shows them."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import psycopg  # noqa: F401 (pytester forgets what is imported under it, and a driver must not come twice)
import pytest
from celery import Celery
from sqlalchemy import create_engine, text

import argus_celery.testing
from argus_celery import Argus, current, durable
from argus_celery.errors import HookError
from argus_celery.testing.clock import Clock
from argus_celery.testing.ledger import Ledger
from argus_celery.testing.stores import TestStore
from argus_celery.testing.workers import Workers

pytest_plugins = ["pytester"]

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
FILES = dict(re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
_numbers = itertools.count(1)


@pytest.fixture
def app() -> Iterator[Celery]:
    """Configured for servers that are not there."""
    made = Celery(f"tested{next(_numbers)}", broker="redis://nowhere.invalid", set_as_current=False)
    made.conf.result_backend = "redis://nowhere.invalid"
    Argus(made, store="postgresql+psycopg://nowhere.invalid/shop")
    yield made
    made.close()


def test_a_worker_runs_tasks_with_no_server(argus_worker: Workers, app: Celery) -> None:
    @durable
    @app.task(shared=False)
    def attempt() -> tuple[str | None, int]:
        return current.project, current.attempt

    argus = argus_worker(app)
    assert attempt.delay().get(timeout=20) == ["default", 1]
    with argus.project("mine"):
        assert attempt.delay().get(timeout=20) == ["mine", 1]


def test_an_app_that_used_the_store_is_as_it_was(argus_store_url: str, argus_clock: Clock, app: Celery) -> None:
    before, argus = dict(app.conf), Argus.of(app)
    assert argus is not None
    with ExitStack() as stack:
        assert TestStore(argus_store_url, argus_clock, stack).use(app) is argus
        assert argus.settings.store_url == argus_store_url
    assert dict(app.conf) == before
    assert argus.settings.store_url == "postgresql+psycopg://nowhere.invalid/shop"


def test_what_is_due_in_two_days_runs_when_the_clock_is_moved(
    argus_worker: Workers, argus_clock: Clock, app: Celery
) -> None:
    @durable
    @app.task(shared=False)
    def later() -> str:
        return "done"

    argus_worker(app)
    result = later.apply_async(countdown=48 * 3600)
    argus_clock.advance(days=1, hours=23)
    assert result.state == "PENDING"
    argus_clock.advance(hours=1, seconds=1)
    assert result.get(timeout=20) == "done"


def test_the_clock_does_not_go_back(argus_clock: Clock) -> None:
    argus_clock.advance(seconds=1.5)
    with pytest.raises(ValueError, match="cannot go back"):
        argus_clock.advance_by(timedelta(seconds=-1))
    assert argus_clock.shift == 1500


def test_an_app_without_argus_is_refused(argus_store: TestStore) -> None:
    with pytest.raises(HookError, match=r"has no Argus: call Argus\(app\)"):
        argus_store.use(Celery("bare", set_as_current=False))


def test_the_ledger_keeps_what_many_write_and_knows_keys(ledger: Ledger) -> None:
    writers = [threading.Thread(target=ledger.write, args=("mail", number)) for number in range(20)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(ledger.effects) == [("mail", number) for number in range(20)]
    ledger.write("charge", 17, key="a")
    ledger.write("charge", 18, key="a")
    ledger.write("refund", 17, key="a")
    assert ledger.effects[20:] == [("charge", 17), ("refund", 17)]
    assert (ledger.count("mail"), ledger.count("charge"), ledger.count("charge", 18)) == (20, 1, 0)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", sorted(name for name in FILES if name.startswith("test_")))
def test_the_page_shows_what_works(pytester: pytest.Pytester, name: str) -> None:
    for shown in ("shop.py", name):
        (pytester.path / shown).write_text(FILES[shown])
    result = pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=FILES[name].count("def test_"))


@pytest.mark.timeout(900)
def test_a_test_that_fails_says_where(pytester: pytest.Pytester) -> None:
    (pytester.path / "shop.py").write_text(FILES["shop.py"])
    pytester.makepyfile(
        """
        import shop

        def test_it(kill_after, ledger, monkeypatch):
            monkeypatch.setattr(shop, "charge_card", lambda order: ledger.write("charge", order))
            kill_after(shop.charge, [17], points="effect")
        """
    )
    result = pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*killed after effect charge 17 (point 1 of 1): the effect ('charge', 17) happened twice, expected once*"]
    )
    assert str(Path(argus_celery.testing.__file__).parent) not in result.stdout.str(), "frames of the plugin"


def test_a_kill_and_a_worker_in_one_test_are_refused(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(kill_after, argus_worker): pass")
    result = pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*kill_after starts the workers itself*"])


def test_the_option_names_a_server(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(argus_store): pass")
    result = pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider", "--argus-store", "sqlite:///shop.db")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*--argus-store sqlite:///shop.db: *name a server*"])


@pytest.mark.postgres
@pytest.mark.timeout(900)
def test_a_server_gives_each_test_a_database_of_its_own(pytester: pytest.Pytester, postgres_url: str) -> None:
    (pytester.path / "shop.py").write_text(FILES["shop.py"])
    pytester.makepyfile(
        """
        import shop

        def test_it(argus_worker, argus_store_url):
            assert argus_store_url.startswith("postgresql")
            print("URL", argus_store_url.rpartition("/")[2])
            argus_worker(shop.app)
            assert shop.charge.delay(17).get(timeout=20) == "charged"
        """
    )
    result = pytester.runpytest_subprocess("-q", "-s", "-p", "no:cacheprovider", "--argus-store", postgres_url)
    result.assert_outcomes(passed=1)
    (made,) = re.findall(r"URL (\w+)", result.stdout.str())
    with create_engine(postgres_url).connect() as connection:
        known = connection.execute(text("SELECT count(*) FROM pg_database WHERE datname = :name"), {"name": made})
        assert known.scalar_one() == 0
