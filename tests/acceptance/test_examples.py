"""The examples as a user starts them: one command, no server, and their workers are killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(480)]


def run(folder: Path, *command: str) -> str:
    """What it prints, without the spaces of its table."""
    environment = {**os.environ, "TMPDIR": str(folder)}
    call = [sys.executable, "-m", *command]
    done = subprocess.run(call, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(folder.iterdir()) == []
    return "\n".join(" ".join(line.split()) for line in done.stdout.splitlines())


def test_the_agent_answers_every_letter_and_does_nothing_twice(tmp_path: Path) -> None:
    said = run(tmp_path, "examples.agent", "--letters", "3", "--kills", "2")
    assert "refunds, parcels and mails 9\nof these made twice 0\n" in said
    assert "worker 2 is killed" in said and "as promised" in said


def test_the_crawl_saves_every_page_once(tmp_path: Path) -> None:
    said = run(tmp_path, "examples.crawl", "--pages", "200", "--kills", "2")
    assert "found 200\nsaved twice 0\n" in said
    assert "worker 2 is killed" in said and "as promised" in said
