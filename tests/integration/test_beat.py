"""With every scheduler the sweep's beat entry is there, and a durable entry is one task for each instant."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
import sqlalchemy as sa

from argus_celery.flow.tick import due_of
from argus_celery.store.schema import projects, tasks
from tests.faults.ledger import wait_for
from tests.integration.workers import Bench, Worker, bench

pytestmark = pytest.mark.redis

DJANGO = """
SECRET_KEY = "x"
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "django_celery_beat"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "beat.db"}}
USE_TZ = True
"""


@pytest.fixture
def workers(redis_broker: str, tmp_path: Path) -> Iterator[Bench]:
    entries = {"sums": {"task": "add", "schedule": 1.0, "args": [1, 2], "options": {"argus_project": "sums"}}}
    with bench(redis_broker, tmp_path, conf={"redbeat_redis_url": redis_broker, "beat_schedule": entries}) as one:
        yield one


def _beat(workers: Bench, *arguments: str) -> Worker:
    app = ["-A", "tests.integration.worker_bodies", "beat", "--max-interval", "1", *arguments]
    node = Worker("beat", workers.setup, workers.folder, app)
    workers.nodes.append(node)
    return node


@pytest.mark.parametrize("scheduler", ["celery.beat.PersistentScheduler", "redbeat.RedBeatScheduler"])
def test_a_scheduler_sends_the_sweep_with_its_expiry(workers: Bench, scheduler: str) -> None:
    node = _beat(workers, "-S", scheduler)
    sent = wait_for(lambda: _sweep_message(workers), 20, f"a sweep is sent\n{node.tail()}")
    assert sent["headers"]["expires"] is not None
    assert "argus_token" not in sent["headers"]
    wait_for(lambda: _is_ticking(workers), 20, f"a durable entry ticks\n{node.tail()}")


def test_django_celery_beat_sends_the_sweep(workers: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("django_celery_beat")
    import subprocess
    import sys

    (tmp_path / "beat_settings.py").write_text(DJANGO)
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "beat_settings")
    subprocess.run(
        [sys.executable, "-m", "django", "migrate", "-v", "0", "--pythonpath", "."], cwd=tmp_path, check=True
    )
    node = _beat(workers, "-S", "django")
    wait_for(lambda: _sweep_message(workers), 30, f"a sweep is sent\n{node.tail()}")
    wait_for(lambda: _is_ticking(workers), 20, f"a durable entry ticks\n{node.tail()}")


def _is_ticking(workers: Bench) -> bool:
    """Two tasks under keys of their instants, in the project that the entry names."""
    project = sa.select(projects.c.id).where(projects.c.name == "sums").scalar_subquery()
    query = sa.select(tasks.c.key).where(tasks.c.project_id == project, tasks.c.name == "add").order_by(tasks.c.key)
    keys = list(workers.store.statement(lambda connection: connection.execute(query).scalars()))
    instants = [due for key in keys if (due := due_of(key)) is not None]
    assert len(instants) == len(keys)
    return len(keys) >= 2


def _sweep_message(workers: Bench) -> dict[str, dict[str, str | None]] | None:
    waiting = redis.Redis.from_url(workers.setup.broker).lrange("celery", 0, -1)
    messages = [json.loads(one) for one in waiting]
    return next((one for one in messages if one["headers"].get("task") == "argus.sweep"), None)
