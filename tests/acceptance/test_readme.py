"""The README's first example, saved and run as it says, with nothing but a worker beside it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)[0]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(EXAMPLE)
    return tmp_path


@pytest.fixture
def worker(shop: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "celery", "-A", "shop", "worker", "-c", "2"]
    with (shop / "worker.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=shop, env=_environment(shop), stdout=log, stderr=log, start_new_session=True
        )
    yield process
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_the_first_example_runs_as_it_stands_and_once_more(shop: Path, worker: subprocess.Popen[bytes]) -> None:
    for _ in range(2):
        _run(shop)


def _run(shop: Path) -> None:
    run = subprocess.run(
        [sys.executable, "shop.py"], cwd=shop, env=_environment(shop), capture_output=True, text=True, timeout=90
    )
    assert run.stdout == "order 99 charged and the project is completed\n", (
        run.stderr + (shop / "worker.log").read_text()
    )
    assert (shop / "argus.db").exists()


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(["", str(ROOT)]), "TMPDIR": str(folder)}
