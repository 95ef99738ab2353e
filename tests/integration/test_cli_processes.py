"""``celery -A app argus …`` as a shell runs it: the app is found, codes come back, names complete."""

from __future__ import annotations

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

app = Celery("shop", broker="memory://")
argus = Argus(app, store=os.environ["STORE"])
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def celery(tmp_path: Path, sqlite_store_url: str) -> Run:
    (tmp_path / "shop.py").write_text(APP)
    environment = {**os.environ, "STORE": sqlite_store_url, "PYTHONPATH": os.pathsep.join(sys.path)}

    def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "import sys; sys.argv[0] = 'celery'; from celery.__main__ import main; main()"]
        return subprocess.run(
            [*command, *arguments],
            cwd=tmp_path,
            env={**environment, **more},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def test_the_app_is_found_and_the_code_comes_back(celery: Run) -> None:
    made = celery("-A", "shop", "argus", "init")
    assert (made.returncode, "has the tables of version" in made.stdout) == (0, True), made.stderr
    missing = celery("-A", "shop", "argus", "show", "import")
    assert (missing.returncode, missing.stderr) == (1, "Error: there is no project 'import'.\n")


def test_no_color_is_no_colour(celery: Run) -> None:
    celery("-A", "shop", "argus", "init")
    for command in ("doctor", "status", "projects", "tasks"):
        shown = celery("--no-color", "-A", "shop", "argus", command, CLICOLOR_FORCE="1", FORCE_COLOR="1")
        assert shown.stdout and "\x1b[3" not in shown.stdout


def test_an_app_without_argus_is_told_what_to_do(celery: Run) -> None:
    bare = celery("argus", "status")
    assert bare.returncode == 1
    assert "Argus(app)" in bare.stderr


def test_the_shell_completes_names_of_projects(celery: Run, tmp_path: Path) -> None:
    from argus_celery.config import Settings
    from argus_celery.flow import steer
    from argus_celery.flow.runtime import Runtime
    from argus_celery.store import setup
    from argus_celery.store.engine import Store

    url = f"sqlite:///{tmp_path / 'store.db'}"
    store = Store(url, app_name="shop", on_connect=setup.make)
    runtime = Runtime(store, Settings(store_url=url), lambda dispatches: ())
    for name in ("import-1", "import-2", "night"):
        steer.open_project(runtime, name)
    store.dispose()

    def completed(line: str, app: str = "shop") -> list[str]:
        words = f"celery -A {app} argus {line}"
        asked = celery(_CELERY_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(len(words.split()) - 1))
        assert asked.stderr == ""
        return asked.stdout.split()

    assert completed("show import") == ["plain,import-2", "plain,import-1"]
    assert completed("sho") == ["plain,show"]
    assert completed("show import", app="nothing_of_this_name") == []
