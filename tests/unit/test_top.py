"""The picture of ``argus top`` fits its terminal, whatever is in it, and its speed is that of the last two looks."""

from __future__ import annotations

import os
import termios
from io import StringIO

import pytest
from rich.console import Console

from argus_celery.cli.top.keys import Keys
from argus_celery.cli.top.screen import Sort, View, frame, ordered
from argus_celery.cli.top.speed import Speed, left_ms
from argus_celery.records import ProjectInfo, ProjectStatus, TaskState
from argus_celery.store.board import Board, QueueLoad, WorkerLoad
from argus_celery.store.engine import Store

STORE = Store("sqlite:////srv/shop.db")


def project(name: str, *, succeeded: int = 0, failed: int = 0, queued: int = 0) -> ProjectInfo:
    counts = dict.fromkeys(TaskState, 0)
    counts |= {TaskState.SUCCEEDED: succeeded, TaskState.FAILED: failed, TaskState.QUEUED: queued}
    return ProjectInfo(name, ProjectStatus.OPEN, False, 0, None, None, counts)


def board(now: int, *projects: ProjectInfo, queues: int = 1, workers: int = 1) -> Board:
    loads = tuple(QueueLoad(f"queue{n}", 5, 2, 1000, 3, now - 90_000) for n in range(queues))
    held = tuple(WorkerLoad(f"w{n}", f"celery@{n}", "host", n, 2, 0, now - 1000) for n in range(workers))
    return Board(now, projects, loads, held)


def picture(seen: Board, view: View, width: int, height: int, speed: Speed | None = None) -> list[str]:
    console = Console(width=width, record=True, file=StringIO())
    console.print(frame(STORE, seen, speed or Speed(), view, width, height), end="")
    return [line.rstrip() for line in console.export_text().splitlines()]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (140, 40), (60, 12)])
@pytest.mark.parametrize(("projects", "queues", "workers"), [(0, 0, 0), (1, 1, 1), (100, 30, 100)])
def test_it_fits_the_terminal(width: int, height: int, projects: int, queues: int, workers: int) -> None:
    many = [project(f"import of a rather long name {n}", queued=n) for n in range(projects)]
    lines = picture(board(0, *many, queues=queues, workers=workers), View(selected="nobody"), width, height)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width


def test_what_is_selected_is_in_the_picture_though_there_is_no_room_for_all() -> None:
    many = [project(f"p{n}", queued=n) for n in range(100)]
    lines = picture(board(0, *many), View(selected="p7"), 80, 24)
    assert any(line.startswith("p7 ") for line in lines)
    assert any("of 100)" in line for line in lines)


def test_names_are_shown_as_they_are_and_cannot_harm_the_terminal() -> None:
    lines = picture(board(0, project("[red]x[/red]\x1b[2J")), View(), 140, 24)
    assert any(line.startswith("[red]x[/red]\\x1b[2J") for line in lines)


def test_only_columns_that_say_something_are_drawn_and_a_dead_worker_is_told() -> None:
    queue = QueueLoad("celery", 0, 0, 1, 0, None)
    workers = (WorkerLoad("w1", "a@host", "host", 7, 0, 0, 0), WorkerLoad("w2", "b@host", "host", 8, 2, 0, 0, True))
    lines = picture(Board(1000, (), (queue,), workers), View(), 100, 24)
    heads = [line for line in lines if line.startswith(("queue ", "worker "))]
    assert not any(word in head for head in heads for word in ("host", "due for"))
    assert [line.split()[0] for line in lines if line.endswith("died")] == ["b@host"]
    lines = picture(board(0), View(), 100, 24)
    heads = [line for line in lines if line.startswith(("queue ", "worker "))]
    assert heads[0].endswith("due for") and heads[1].endswith("host")


def test_what_argus_keeps_for_itself_is_no_project_to_look_at() -> None:
    lines = picture(board(0, project("argus.results", succeeded=3), project("argus.busy", queued=1)), View(), 100, 24)
    assert not any("argus.results" in line for line in lines)
    assert any("argus.busy" in line for line in lines)


def test_speed_is_what_ended_between_the_last_two_looks() -> None:
    speed = Speed()
    speed.note(board(10_000, project("a", succeeded=10, queued=90), project("b", succeeded=5)))
    assert not speed.known
    speed.note(board(10_100, project("a", succeeded=11, queued=89)))  # too soon after the first
    assert not speed.known
    second = project("a", succeeded=25, failed=5, queued=70)
    speed.note(board(12_000, second, project("b", succeeded=2, queued=3), project("new", succeeded=9)))
    assert speed.of == {"a": 10.0, "b": 0.0}
    assert speed.total == 10.0
    assert left_ms(second, 10.0) == 7000
    assert left_ms(second, 0.0) is None
    shown = picture(board(12_000, second), View(), 140, 24, speed)
    assert any("10.0" in line and "7.0 s" in line for line in shown)


def test_projects_stand_in_the_order_that_was_chosen() -> None:
    a, b, c = project("a", queued=1), project("b", failed=3), project("c", queued=5)
    speed = Speed()
    speed.of = {"b": 4.0}
    orders = {sort: [one.name for one in ordered([a, b, c], speed, sort)] for sort in Sort}
    assert orders == {
        Sort.ALIVE: ["c", "a", "b"],
        Sort.FAILED: ["b", "a", "c"],
        Sort.SPEED: ["b", "a", "c"],
        Sort.NAME: ["a", "b", "c"],
    }
    assert Sort.NAME.next is Sort.ALIVE


def test_a_key_is_read_without_enter_and_the_terminal_is_given_back() -> None:
    person, terminal = os.openpty()
    before = termios.tcgetattr(terminal)
    with Keys(terminal) as keys:
        for pressed, name in [
            (b"p", "p"),
            (b"\x1b[A", "up"),
            (b"\x1bOB", "down"),
            (b" ", "space"),
            (b"\xff", "\ufffd"),
        ]:
            os.write(person, pressed)
            assert keys.read(5) == name
        assert keys.read(0) is None
    assert termios.tcgetattr(terminal) == before
    os.close(terminal)
    os.close(person)
