"""The private folder in which a worker tells its children what they have lost."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from argus_celery.hooks import told


def test_a_worker_removes_the_folders_that_killed_workers_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv(told.TOLD_DIR, raising=False)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    old, fresh, running, odd = (
        tmp_path / f"{told.FOLDER}{name}" for name in (f"{gone.pid}-a", f"{gone.pid}-b", f"{os.getpid()}-c", "no-pid")
    )
    for folder in (old, fresh, running, odd):
        folder.mkdir()
    for folder in (old, running, odd):
        os.utime(folder, (0, 0))
    told.prepare()
    assert not old.exists()
    assert all(folder.exists() for folder in (fresh, running, odd))
    assert Path(os.environ[told.TOLD_DIR]).parent == tmp_path
    monkeypatch.delenv(told.TOLD_DIR)
