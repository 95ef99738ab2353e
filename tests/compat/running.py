"""Run tests of the suite on a pair, one pytest after the other, and read how each test ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tests.compat import suite
from tests.compat.judging import Ended
from tests.compat.pairs import Pair, servers

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = ["-q", "--tb=short", "--timeout=300", "-p", "no:cacheprovider", "-p", "tests.compat.plugin"]


def run(pair: Pair, calls: Sequence[Sequence[str]]) -> dict[str, Ended]:
    """Each call is the arguments of one pytest; all of them meet the same servers."""
    folder = suite.unpacked()
    with servers(pair) as places, tempfile.NamedTemporaryFile(suffix=".jsonl") as outcomes:
        known = {**os.environ, **places, "ARGUS_COMPAT_OUTCOMES": outcomes.name, "PYTHONPATH": str(ROOT)}
        for call in calls:
            subprocess.run([sys.executable, "-m", "pytest", *OPTIONS, *call], cwd=folder, env=known, check=False)
        return _read(Path(outcomes.name))


def _read(file: Path) -> dict[str, Ended]:
    """A test has a line for itself, and more for its subtests and for errors in its fixtures."""
    found: dict[str, Ended] = {}
    for line in map(json.loads, file.read_text().splitlines()):
        before = found.get(line["test"], Ended(line["test"], "passed"))
        found[line["test"]] = _with(before, line)
    return found


def _with(before: Ended, line: dict[str, Any]) -> Ended:
    if line["subtest"]:
        return replace(before, subtests=before.subtests + 1, why=before.why or line["why"])
    outcome = before.outcome if before.outcome == "failed" else line["outcome"]
    return replace(before, outcome=outcome, why=before.why or line["why"], seconds=before.seconds + line["seconds"])


# How each test ended last on each pair is kept beside the suite


def keep(pair: Pair, ended: dict[str, Ended]) -> None:
    everything = {**kept(pair), **ended}
    _file(pair).write_text(json.dumps([asdict(one) for one in everything.values()]))


def kept(pair: Pair) -> dict[str, Ended]:
    if not _file(pair).exists():
        return {}
    return {one["test"]: Ended(**one) for one in json.loads(_file(pair).read_text())}


def _file(pair: Pair) -> Path:
    return suite.CACHE / f"{pair.name}.json"
