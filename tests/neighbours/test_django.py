"""Django: what is enqueued on commit is recorded after the commit or not at all, and its worker runs durable tasks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from argus_celery.records import TaskState
from argus_celery.store import reports
from argus_celery.store.engine import Store
from argus_celery.store.schema import tasks
from tests.integration.embedded import Shop, until
from tests.neighbours.conftest import bodies

django = pytest.importorskip("django")
from django.conf import settings  # noqa: E402
from django.db import connections, transaction  # noqa: E402

ROOT = Path(__file__).parents[2]
SETTINGS = """
SECRET_KEY = "x"
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db"}}
"""
PROJECT = """
from celery import Celery, shared_task
from argus_celery import Argus, durable

app = Celery("proj", broker="argus+sqlite:///broker.db", backend="argus://")
app.config_from_object("django.conf:settings", namespace="CELERY")
argus = Argus(app, store="sqlite:///broker.db", lease_ttl=6, sweep_interval=3)

@durable
@shared_task
def join(name):
    from django.contrib.auth.models import Group
    return Group.objects.create(name=name).name
"""
SEND = """
import django; django.setup()
from django.db import transaction
from proj import join
with transaction.atomic():
    join.delay_on_commit("a")
try:
    with transaction.atomic():
        join.delay_on_commit("never")
        raise RuntimeError
except RuntimeError:
    join.delay_on_commit("b")
"""


@pytest.fixture
def made(made: Shop, tmp_path: Path) -> Iterator[Shop]:
    if not settings.configured:
        settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})
        django.setup()
    made.app.task_cls = "celery.contrib.django.task:DjangoTask"
    bodies(made)
    yield made
    connections.close_all()


def test_a_task_is_recorded_when_djangos_transaction_commits(made: Shop) -> None:
    add = made.app.tasks["shop.add"]
    with transaction.atomic():
        add.delay_on_commit(1, 2)
        add.apply_async_on_commit((3, 4), argus_key="k")
        transaction.on_commit(lambda: add.delay(5, 6))
        assert made.rows() == {}
    assert made.names() == ["add"] * 3
    with made.worker():
        made.drained()
    assert sorted(made.log) == [(1, 2), (3, 4), (5, 6)]


def test_nothing_is_recorded_for_a_transaction_that_is_rolled_back(made: Shop) -> None:
    with transaction.atomic():
        made.app.tasks["shop.add"].delay_on_commit(1, 2)
        transaction.set_rollback(True)
    assert made.rows() == {}


def test_a_django_project_enqueues_on_commit_and_its_worker_runs_it(tmp_path: Path) -> None:
    (tmp_path / "shop_settings.py").write_text(SETTINGS)
    (tmp_path / "proj.py").write_text(PROJECT)
    _python(tmp_path, "-m", "django", "migrate", "-v", "0")
    _python(tmp_path, "-c", SEND)
    store = Store(f"sqlite:///{tmp_path / 'broker.db'}")
    with _worker(tmp_path):
        until(lambda: _states(store) == {TaskState.SUCCEEDED}, 30, lambda: (tmp_path / "worker.log").read_text())
    assert len(_ids(store)) == 2


def _ids(store: Store) -> list[str]:
    return list(store.statement(lambda connection: connection.execute(sa.select(tasks.c.id)).scalars().all()))


def _states(store: Store) -> set[TaskState]:
    found = [reports.task_info(store, task_id) for task_id in _ids(store)]
    return {one.state for one in found if one is not None}


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "DJANGO_SETTINGS_MODULE": "shop_settings", "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}


def _python(folder: Path, *arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], cwd=folder, env=_environment(folder), check=True)


@contextmanager
def _worker(folder: Path) -> Iterator[Any]:
    call = [sys.executable, "-m", "celery", "-A", "proj", "worker", "-c", "1", "-l", "INFO"]
    with (folder / "worker.log").open("w") as log:
        process = subprocess.Popen(call, cwd=folder, env=_environment(folder), stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(timeout=30)
