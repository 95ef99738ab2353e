"""pytest-celery's own nodes and clusters, on processes of this machine; on containers with ``ARGUS_SMOKE_ON=docker``.

Its whole API hangs on one fixture, ``docker_client``; the tests do not know which of the two they run on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import docker
import pytest
import pytest_docker_tools.wrappers.container
from celery import Celery
from docker.errors import DockerException
from pytest_celery import (
    DEFAULT_WORKER_CONTAINER_TIMEOUT,
    DEFAULT_WORKER_VOLUME,
    CeleryTestContainer,
    CeleryTestSetup,
    CeleryTestWorker,
    CeleryWorkerCluster,
    CeleryWorkerContainer,
)
from pytest_docker_tools import build, container, fxtr

from argus_celery import Argus
from argus_celery.store import setup
from argus_celery.store.engine import Store
from tests.smoke import smoke_app, smoke_tasks
from tests.smoke.processes import ProcessClient

ROOT = Path(__file__).parents[2]
TIMES = {"lease_ttl": 6, "sweep_interval": 3, "dispatch_ttl": 3, "dispatch_ttl_max": 30}


@pytest.fixture(scope="session")
def docker_client() -> Iterator[Any]:
    if os.environ.get("ARGUS_SMOKE_ON") == "docker":
        yield _engine()
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pytest_docker_tools.wrappers.container, "tests_inside_container", lambda: False)
        client = ProcessClient()
        yield client
        client.close()


def _engine() -> docker.DockerClient:
    try:
        engine = docker.from_env()
        engine.ping()
    except DockerException as error:
        pytest.skip(f"ARGUS_SMOKE_ON=docker, but no Docker engine answers ({error}): start one, or unset it")
    return engine


@pytest.fixture(
    params=[
        pytest.param("celery_redis_broker", marks=pytest.mark.redis, id="redis"),
        pytest.param("celery_rabbitmq_broker", marks=pytest.mark.rabbitmq, id="rabbitmq"),
    ]
)
def celery_broker(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@pytest.fixture
def celery_backend_cluster() -> None:
    """Results are in the store."""


# --- the store -----------------------------------------------------------------------------------------------------


class StoreContainer(CeleryTestContainer):
    """A PostgreSQL of its own: containers and the test cannot share an SQLite file."""

    @property
    def ready_prompt(self) -> str:
        return "database system is ready to accept connections"

    @property
    def url(self) -> str:
        """As the containers reach it."""
        return self._url(self.attrs["Config"]["Hostname"])

    @property
    def host_url(self) -> str:
        return self._url(f"localhost:{self._wait_port('5432/tcp')}")

    def _url(self, place: str) -> str:
        return f"postgresql+psycopg://postgres@{place}/postgres"


smoke_store = container(
    image="postgres:16",
    environment={"POSTGRES_HOST_AUTH_METHOD": "trust"},
    ports={"5432/tcp": None},
    network="{default_pytest_celery_network.name}",
    wrapper_class=StoreContainer,
    timeout=60,
)


@pytest.fixture
def store(smoke_store: StoreContainer, celery_setup_name: str) -> Iterator[Store]:
    """The store as the test sees it, with its tables made."""
    store = Store(smoke_store.host_url, app_name=celery_setup_name)
    setup.init(store)
    yield store
    store.dispose()


# --- the app, here and in the workers ------------------------------------------------------------------------------


@pytest.fixture
def celery_setup_cls(store: Store) -> type[CeleryTestSetup]:
    class Setup(CeleryTestSetup):
        @classmethod
        def update_app_config(cls, app: Celery) -> None:
            app.conf.result_backend = "argus://"
            Argus(app, store=store.url.render_as_string(hide_password=False), **TIMES)

    return Setup


@pytest.fixture
def celery_setup(celery_setup: CeleryTestSetup) -> CeleryTestSetup:
    """pytest-celery makes further apps while it writes the worker's: shared tasks belong to this one again."""
    celery_setup.app.set_current()
    return celery_setup


@pytest.fixture
def celery_setup_name() -> str:
    return "celery_test_app"


class SmokeWorker(CeleryWorkerContainer):
    @classmethod
    def app_module(cls) -> ModuleType:
        return smoke_app

    @classmethod
    def tasks_modules(cls) -> set[ModuleType]:
        return {smoke_tasks}

    @classmethod
    def command(cls, *args: str, **options: Any) -> list[str]:
        command: list[str] = super().command("--concurrency=2", *args, **options)
        return command


@pytest.fixture
def default_worker_container_cls() -> type[CeleryWorkerContainer]:
    return SmokeWorker


@pytest.fixture(scope="session")
def default_worker_container_session_cls() -> type[CeleryWorkerContainer]:
    return SmokeWorker


@pytest.fixture
def default_worker_env(celery_worker_cluster_config: dict[str, Any], smoke_store: StoreContainer) -> dict[str, str]:
    environment: dict[str, str] = SmokeWorker.initial_env(
        celery_worker_cluster_config, {"SMOKE_STORE_URL": smoke_store.url}
    )
    return environment


celery_base_worker_image = build(path=str(ROOT), dockerfile="tests/smoke/Dockerfile", tag="argus-celery/smoke-worker")

second_worker_container = container(
    image="{celery_base_worker_image.id}",
    ports=fxtr("default_worker_ports"),
    environment=fxtr("default_worker_env"),
    network="{default_pytest_celery_network.name}",
    volumes={"{default_worker_volume.name}": DEFAULT_WORKER_VOLUME},
    wrapper_class=SmokeWorker,
    timeout=DEFAULT_WORKER_CONTAINER_TIMEOUT,
    command=fxtr("default_worker_command"),
)


@pytest.fixture
def second_worker(second_worker_container: SmokeWorker, default_worker_app: Celery) -> Iterator[CeleryTestWorker]:
    worker = CeleryTestWorker(container=second_worker_container, app=default_worker_app)
    yield worker
    worker.teardown()


@pytest.fixture
def two_workers(celery_setup: CeleryTestSetup, second_worker: CeleryTestWorker) -> CeleryWorkerCluster:
    return CeleryWorkerCluster(celery_setup.worker, second_worker)
