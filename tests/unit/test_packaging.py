"""What is installed and what is published: lock files, metadata, the contents of the wheel, the menu."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import entry_points, requires
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=ROOT, check=True)
    return zipfile.ZipFile(next(folder.glob("*.whl"))).namelist()


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_lock_file_names_no_host(lock: Path) -> None:
    assert "://" not in lock.read_text()


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_lock_file_pins_and_hashes_every_package(lock: Path) -> None:
    for requirement in _requirements(lock):
        assert re.match(r"[a-z0-9.-]+==\S+", requirement), requirement
        assert "--hash=sha256:" in requirement, requirement


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_lock_file_brings_the_build_backend_and_every_dependency(lock: Path) -> None:
    locked = {_name(requirement) for requirement in _requirements(lock)}
    assert {"hatchling", "editables", *map(_name, PROJECT["dependencies"])} <= locked


def test_lock_files_agree_on_versions() -> None:
    whole = {_pin(requirement) for requirement in _requirements(ROOT / "requirements" / "dev.txt")}
    for lock in LOCKS:
        assert {_pin(requirement) for requirement in _requirements(lock)} <= whole, lock.name


def test_the_wheel_holds_the_package_its_types_and_its_licence_and_nothing_else(wheel: list[str]) -> None:
    assert {name.split("/")[0] for name in wheel} == {"argus_celery", f"argus_celery-{PROJECT['version']}.dist-info"}
    assert "argus_celery/py.typed" in wheel
    assert any(name.endswith("licenses/LICENSE") for name in wheel)


def test_the_wheel_holds_every_module_and_migration(wheel: list[str]) -> None:
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "argus_celery").rglob("*.py")}
    assert sources <= set(wheel)
    assert any(name.startswith("argus_celery/store/migrations/versions/") for name in wheel)


@pytest.mark.parametrize("group", ["celery.commands", "celery.result_backends"])
def test_celery_finds_its_entry_point(group: str) -> None:
    (point,) = [point for point in entry_points(group=group) if point.name == "argus"]
    assert point.load() is not None


def test_the_redis_extra_brings_what_kombu_needs_for_redis() -> None:
    needed = {_name(line) for line in requires("kombu") or () if line.endswith('extra == "redis"')}
    assert needed
    assert needed <= set(map(_name, PROJECT["optional-dependencies"]["redis"]))


def test_the_changelog_has_a_section_for_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(rf"^## \[({re.escape(PROJECT['version'])}|Unreleased)\]", changelog, re.MULTILINE)


def test_the_menu_has_one_help_line_for_each_job() -> None:
    menu = subprocess.run([ROOT / "dev"], capture_output=True, text=True, check=True).stdout
    jobs = dict(line.split(maxsplit=1) for line in menu.splitlines() if line.startswith("  "))
    assert {"demo", "test", "lint", "types", "faults", "smoke", "bench", "fmt", "docs", "lock"} <= set(jobs)
    assert all(jobs.values())


def test_the_menu_names_its_jobs_when_asked_for_another() -> None:
    answer = subprocess.run([ROOT / "dev", "dance"], capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    assert "no job 'dance'" in answer.stderr
    assert "demo" in answer.stderr


def _requirements(lock: Path) -> list[str]:
    return lock.read_text().replace("\\\n", " ").strip().splitlines()


def _name(requirement: str) -> str:
    return re.split(r"[\[<>=;~! ]", requirement, maxsplit=1)[0].lower()


def _pin(requirement: str) -> str:
    return requirement.split()[0]
