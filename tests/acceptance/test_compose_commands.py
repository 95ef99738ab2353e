"""The commands of docker-compose.yml as local processes, on a PostgreSQL and a Redis of this machine."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import yaml

from tests.services.server import wait_until

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.postgres, pytest.mark.redis]


@pytest.fixture
def services(postgres_store_url: str, redis_broker: str, tmp_path: Path) -> Services:
    return Services(postgres_store_url, redis_broker, tmp_path)


class Services:
    """What the compose file says, with this machine's servers in place of its own."""

    def __init__(self, store: str, broker: str, folder: Path) -> None:
        self.file: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
        self.folder = folder
        place = {"STDLIB_STORE": store, "STDLIB_BROKER": broker, "STDLIB_FOLDER": str(folder)}
        assert set(place) == set(self.file["x-app"]["environment"])
        self.environment = {**os.environ, **place, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def run(self, name: str, seconds: float) -> subprocess.CompletedProcess[str]:
        options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": seconds, "check": False}
        return subprocess.run(self._command(name), cwd=ROOT, env=self.environment, **options)

    @contextlib.contextmanager
    def running(self, name: str) -> Iterator[subprocess.Popen[bytes]]:
        with (self.folder / f"{name}.log").open("wb") as log:
            options: dict[str, Any] = {"stdout": log, "stderr": log, "start_new_session": True}
            process = subprocess.Popen(self._command(name), cwd=ROOT, env=self.environment, **options)
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _command(self, name: str) -> list[str]:
        command: str = self.file["services"][name]["command"]
        named = f"{command} --hostname={name}@%h" if name.startswith("worker") else command
        return shlex.split(named.replace("/tmp/", f"{self.folder}/"))


@pytest.mark.timeout(480)
def test_the_demo_ends_right_though_a_worker_is_killed_half_way(services: Services, postgres_store_url: str) -> None:
    init = services.run("init", 60)
    assert init.returncode == 0, init.stderr
    with contextlib.ExitStack() as stack:
        _, _, worker, demo = (
            stack.enter_context(services.running(name)) for name in ("beat", "worker-2", "worker-1", "demo")
        )
        assert wait_until(lambda: _recorded(postgres_store_url) > 100 or demo.poll() is not None, 120)
        os.killpg(worker.pid, signal.SIGKILL)
        assert demo.wait(300) == 0, (services.folder / "demo.log").read_text()
    assert "right" in (services.folder / "demo.log").read_text()


def _recorded(url: str) -> int:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        if not sa.inspect(connection).has_table("stdlib_results"):
            return 0
        return int(connection.exec_driver_sql("SELECT count(*) FROM stdlib_results").scalar_one())
