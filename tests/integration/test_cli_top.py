"""``argus top``: one look for programs and dumb terminals, and what its keys do."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO

import pytest
from rich.console import Console
from rich.live import Live

from argus_celery import durable
from argus_celery.cli.top.keys import Keys
from argus_celery.cli.top.live import Top
from argus_celery.errors import StoreUnavailable
from argus_celery.records import ProjectStatus, TaskState
from tests.integration.commands import Commands
from tests.integration.embedded import shop


class Fingers(Keys):
    """Presses these, one at each look; then nothing is left but to quit."""

    def __init__(self, *pressed: str) -> None:
        self._pressed = list(pressed)

    def __enter__(self) -> Keys:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self, seconds: float) -> str | None:
        return self._pressed.pop(0) if self._pressed else "q"


@pytest.fixture
def argus(sqlite_store_url: str) -> Iterator[Commands]:
    made = Commands(shop(sqlite_store_url, "memory://"))

    @durable
    @made.shop.app.task(shared=False, name="shop.charge")
    def charge(order: int) -> int:
        return order

    for name, many in (("import", 3), ("night", 1)):
        project = made.shop.argus.project(name)
        made.ids = [project.enqueue(charge.s(n)).id for n in range(many)]  # type: ignore[attr-defined]
    yield made
    made.shop.argus.runtime.store.dispose()


def pressed(argus: Commands, *keys: str) -> tuple[Top, str]:
    """What a person sees who presses these keys."""
    out = StringIO()
    console = Console(file=out, force_terminal=True, width=80, height=24)
    top = Top(argus.shop.argus, 0.2, console, Fingers(*keys))
    top.run()
    return top, out.getvalue()


def test_one_look_for_any_terminal_and_for_programs(argus: Commands) -> None:
    shown = argus("top", "--once").stdout
    assert "0 running   4 queued" in shown and "import" in shown and "\x1b" not in shown
    told = argus.json("top")
    assert [(project["name"], project["counts"]["queued"]) for project in told["projects"]] == [
        ("import", 3),
        ("night", 1),
    ]
    assert [(queue["queue"], queue["queued"]) for queue in told["queues"]] == [("celery", 4)]


def test_without_a_terminal_it_names_the_options_that_work(argus: Commands) -> None:
    assert "--once" in argus.refused("top")


def test_it_draws_and_q_gives_the_terminal_back(argus: Commands) -> None:
    top, shown = pressed(argus, "q")
    assert "import" in shown and "q quit" in shown
    assert shown.endswith("\x1b[?1049l\x1b[?25h") or "\x1b[?1049l" in shown.rpartition("q quit")[2]
    assert top.quits


def test_p_pauses_the_selected_project_and_resumes_it(argus: Commands) -> None:
    top, _ = pressed(argus, "down", "p")
    assert (top.view.selected, top.view.message) == ("night", "")
    assert argus.shop.argus.project("night").progress().paused
    _, shown = pressed(argus, "down", "p", "s")
    assert "night goes on" in shown
    assert not argus.shop.argus.project("night").progress().paused


def test_cancel_asks_first(argus: Commands) -> None:
    _, shown = pressed(argus, "c", "n")
    assert "Cancel 'import'? It cannot be undone: y or n" in shown
    assert argus.shop.argus.project("import").status is ProjectStatus.OPEN
    _, shown = pressed(argus, "c", "y", "h")
    assert "import is cancelled" in shown
    assert argus.shop.argus.project("import").status is ProjectStatus.CANCELLED


def test_r_puts_back_what_failed_and_a_refusal_is_a_line(argus: Commands) -> None:
    argus.ended(argus.ids[0], TaskState.FAILED)  # type: ignore[attr-defined]
    _, shown = pressed(argus, "down", "r", "h")
    assert "night: put back 1" in shown
    argus.shop.argus.project("default")
    top, shown = pressed(argus, "down", "down", "c", "y", "h")
    assert top.view.selected == "default"
    assert "never ends" in shown


def test_space_freezes_s_sorts_and_plus_and_minus_set_the_pace(argus: Commands) -> None:
    top, shown = pressed(argus, "space", "s", "s", "s", "-", "-", "+", "k")
    assert (top.view.frozen, top.view.sort, top.view.every) == (True, "name", 0.4)
    assert "frozen" in shown


def test_a_store_that_goes_away_is_a_line_and_is_looked_for_again(argus: Commands) -> None:
    console = Console(file=StringIO(), force_terminal=True, width=80, height=24)
    top = Top(argus.shop.argus, 0.2, console, Fingers("j", "j", "j"))
    store = argus.shop.argus.runtime.store
    with Live(console=console, auto_refresh=False) as live:
        top.run_once(live)
        url = store.url
        store.dispose()
        store.url, top._look_at = url.set(database="/nowhere/store.db"), 0.0
        top.run_once(live)
        assert "cannot be reached" in console.file.getvalue()  # type: ignore[attr-defined]
        store.dispose()
        store.url, top._look_at = url, 0.0
        top.run_once(live)
    assert top.board is not None and len(top.board.projects) == 2


def test_a_store_that_is_away_at_first_ends_it(argus: Commands) -> None:
    away = shop("postgresql+psycopg://nobody@127.0.0.1:1/none", "memory://")
    top = Top(away.argus, 0.2, Console(file=StringIO(), force_terminal=True), Fingers())
    with pytest.raises(StoreUnavailable):
        top.run()
