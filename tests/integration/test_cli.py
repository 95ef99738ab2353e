"""``celery -A app argus …``, run as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

APP = """
import os
from celery import Celery
from argus_celery import Argus

app = Celery("shop", broker="memory://", backend="cache+memory://")
argus = Argus(app, store=os.environ["STORE"])

@argus.durable
@app.task(name="charge")
def charge(order):
    return order
"""
ENQUEUE = """
from shop import argus, charge
with argus.project("import 1") as project:
    project.enqueue(charge.s(1), key="order-1")
    project.enqueue_many(charge.s(number) for number in (2, 3))
    project.close()
"""

AWAY = "postgresql+psycopg://nobody@127.0.0.1:1/none"

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path, store_url: str) -> Run:
    (tmp_path / "shop.py").write_text(APP)
    environment = {**os.environ, "STORE": store_url, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "80"}

    def run(*arguments: str, app: str | None = "shop") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "celery", *(["-A", app] if app else []), "argus", *arguments]
        return _called(command, tmp_path, environment)

    run.python = lambda code: _called([sys.executable, "-c", code], tmp_path, environment)  # type: ignore[attr-defined]
    return run


def _called(command: list[str], folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_init_makes_the_tables_and_may_be_repeated(run: Run) -> None:
    first, second = run("init"), run("init")
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert "has the tables of version" in first.stdout
    assert "is up to date" in second.stdout


def test_a_server_store_without_tables_is_a_sentence_that_names_the_command(run: Run, store_url: str) -> None:
    status = run("status")
    if store_url.startswith("sqlite"):
        assert "no Argus tables" in status.stderr or status.returncode == 0
    else:
        assert status.returncode == 1
        assert "celery -A shop argus init" in status.stderr
        assert "Traceback" not in status.stderr


def test_what_was_enqueued_is_shown(run: Run) -> None:
    run("init")
    enqueued = run.python(ENQUEUE)  # type: ignore[attr-defined]
    assert enqueued.returncode == 0, enqueued.stderr

    status = json.loads(run("status", "--json").stdout)
    assert status["tasks"]["queued"] == 3
    (project,) = json.loads(run("projects", "--json").stdout)
    assert (project["name"], project["status"], project["counts"]["queued"]) == ("import 1", "closed", 3)
    assert "import 1" in run("projects").stdout

    shown = run("show", "import 1")
    assert shown.returncode == 0, shown.stderr
    assert "3 queued" in shown.stdout
    assert "order-1" in shown.stdout
    tasks = json.loads(run("show", "import 1", "--json", "--limit", "1").stdout)["tasks"]
    assert [task["name"] for task in tasks] == ["charge"]

    mistaken = run("show", "imprt 1")
    assert mistaken.returncode == 1
    assert "Did you mean 'import 1'?" in mistaken.stderr


def test_sweep_says_what_it_did_and_twice_does_nothing(run: Run) -> None:
    run("init")
    swept = run("sweep")
    assert (swept.returncode, swept.stdout) == (0, "dispatched 0, of which lapsed 0; dead 0\n"), swept.stderr


def test_an_app_without_argus_is_told_what_to_do(run: Run) -> None:
    bare = run("status", app=None)
    assert bare.returncode == 1
    assert "Argus(app)" in bare.stderr


def test_an_unknown_command_names_the_near_one(run: Run) -> None:
    wrong = run("projekts")
    assert wrong.returncode == 2
    assert "Did you mean 'projects'?" in wrong.stderr


@pytest.mark.parametrize("command", ["init", "status", "projects", "sweep"])
def test_a_store_that_is_away_is_one_sentence(tmp_path: Path, command: str) -> None:
    (tmp_path / "shop.py").write_text(APP)
    environment = {**os.environ, "STORE": AWAY, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = _called([sys.executable, "-m", "celery", "-A", "shop", "argus", command], tmp_path, environment)
    assert run.returncode == 1
    assert "Error: the store postgresql+psycopg://nobody@127.0.0.1:1/none cannot be reached" in run.stderr
    assert "Traceback" not in run.stderr
