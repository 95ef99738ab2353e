"""The sweep's beat entry is there with every scheduler, and a sweep by beat alone keeps a project going."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

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
    with bench(redis_broker, tmp_path, conf={"redbeat_redis_url": redis_broker}) as one:
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


def _sweep_message(workers: Bench) -> dict[str, dict[str, str | None]] | None:
    waiting = redis.Redis.from_url(workers.setup.broker).lrange("celery", 0, -1)
    messages = [json.loads(one) for one in waiting]
    return next((one for one in messages if one["headers"].get("task") == "argus.sweep"), None)
