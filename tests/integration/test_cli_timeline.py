"""``celery argus timeline``, called in process."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from celery import Celery
from click.testing import CliRunner, Result

from argus_celery import Argus
from argus_celery.cli import argus as command
from argus_celery.flow.complete import complete
from argus_celery.flow.lapse import lapse
from argus_celery.records import Outcome, TaskState
from tests.store.bench import Bench


@pytest.fixture
def app(sqlite_store_url: str) -> Celery:
    """Of its project's two tasks one has lost its worker and runs again."""
    app = Celery("shop", broker="memory://", set_as_current=False)
    argus = Argus(app, store=sqlite_store_url)
    argus.project("import 1")
    bench = Bench(argus.runtime.store)
    complete(bench.rt, bench.running("w1", project="import 1"), Outcome(TaskState.SUCCEEDED, b"{}"))
    lost = bench.running("w1", project="import 1", id="lost-one")
    lapse(bench.rt, "w1", lost.task_id, lost.token, "the process 4711 was lost")
    bench.claim("w2", lost.task_id)
    return app


def run(app: Celery, *arguments: str) -> Result:
    found = CliRunner().invoke(command, ["timeline", *arguments], obj=SimpleNamespace(app=app), env={"COLUMNS": "120"})
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found


def test_the_timeline_is_shown_told_and_written(app: Celery, tmp_path: Path) -> None:
    shown = run(app, "import 1")
    assert shown.exit_code == 0, shown.output
    assert "3 attempts · 2 tasks · 2 workers" in shown.output
    assert "lost-one killed on worker w1 → worker w2" in shown.output

    told = json.loads(run(app, "import 1", "--json").stdout)
    assert [one["outcome"] for one in told["attempts"]] == ["succeeded", "lost", None]
    assert told["earlier"] is None
    assert len(json.loads(run(app, "import 1", "--json", "--limit", "1").stdout)["attempts"]) == 2  # one, and what runs

    files = tmp_path / "timeline.html", tmp_path / "timeline.svg"
    written = run(app, "import 1", "--html", str(files[0]), "--svg", str(files[1]))
    assert written.exit_code == 0 and written.stdout == ""
    assert files[0].read_text().startswith("<!doctype html>")
    assert files[1].read_text().startswith("<svg ")


def test_what_cannot_be_done_is_one_sentence(app: Celery, tmp_path: Path) -> None:
    mistaken = run(app, "imprt 1")
    assert mistaken.exit_code == 1 and "Did you mean 'import 1'?" in mistaken.output
    nowhere = run(app, "import 1", "--svg", str(tmp_path / "none" / "timeline.svg"))
    assert nowhere.exit_code == 1 and "timeline.svg cannot be written: No such file" in nowhere.output
    assert run(app, "import 1", "--limit", "0").exit_code == 2
