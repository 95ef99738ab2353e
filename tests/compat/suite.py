"""Celery's integration tests: downloaded with the source distribution of the Celery that is installed."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

import celery

CACHE = Path(sys.prefix) / "compat"

# Canvas, tasks, worker and results.
FILES = (
    "test_canvas.py",
    "test_group_chains.py",
    "test_tasks.py",
    "test_worker.py",
    "test_inspect.py",
    "test_redis_backend.py",
    "test_serialization.py",
    "test_request_backend_down.py",
)


# What the part of the suite takes of them: something of each feature.
PART = (
    ("test_canvas.py", "not large and not nine and not implicit"),
    ("test_tasks.py", "not multi and not complex_canvas"),
    ("test_worker.py", ""),
    ("test_inspect.py", ""),
    ("test_serialization.py", ""),
)


def whole() -> list[list[str]]:
    """The arguments of one pytest for each file."""
    return [[f"t/integration/{name}"] for name in FILES]


def part() -> list[list[str]]:
    return [[f"t/integration/{name}", "-k", expression] for name, expression in PART]


def selected(arguments: Sequence[str]) -> list[str]:
    """Files may be given by their name alone."""
    return [f"t/integration/{one}" if one.startswith("test_") else one for one in arguments]


def unpacked() -> Path:
    """The folder that holds ``t/``; the package itself stays out, so that the installed one is what is tested."""
    folder = CACHE / f"celery-{celery.__version__}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=_made(CACHE)) as scratch:
            _unpack(_downloaded(Path(scratch)), Path(scratch))
            (Path(scratch) / folder.name).rename(folder)
    return folder


def _downloaded(place: Path) -> Path:
    name = f"celery=={celery.__version__}"
    call = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*call, "--no-binary", "celery", "--dest", str(place), name], check=True)
    return next(place.glob("celery-*.tar.gz"))


def _unpack(archive: Path, place: Path) -> None:
    with tarfile.open(archive) as source:
        wanted = [
            member for member in source.getmembers() if member.name.split("/")[1:2] in (["t"], ["pyproject.toml"])
        ]
        source.extractall(place, wanted, filter="data")


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
