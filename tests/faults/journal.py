"""A journal of runs: the whole matrix takes longer than a machine may be quiet, so that it can be run in pieces.

One line of JSON for each run that has ended, as it ends, with the commit it ran on. A run that is noted as ok is not
run again; one that failed is, and the last line of a run counts.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict
from pathlib import Path

from tests.faults.report import Row


def read(path: Path) -> dict[tuple[str, str], Row]:
    """The last row of each (case, combination)."""
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [Row(**json.loads(line)) for line in lines]
    return {(row.case, row.combination): row for row in rows}


def note(path: Path, row: Row) -> None:
    with path.open("a") as file:
        file.write(json.dumps(asdict(row)) + "\n")


def commit() -> str:
    """The commit that is checked out, marked if it was changed."""
    here = Path(__file__).parent
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=here, capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or "unknown"
