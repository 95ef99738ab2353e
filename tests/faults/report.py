"""The result of a run of the bench as a text table: case x combination."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.faults.matrix import CASES, case


@dataclass(frozen=True, slots=True)
class Row:
    case: str
    combination: str
    result: str
    recovery: float | None
    commit: str = ""


def write(path: Path, rows: Sequence[Row], title: str) -> None:
    path.write_text("\n".join([*_head(rows, title), "", *_table(rows)]) + "\n")


def _head(rows: Sequence[Row], title: str) -> list[str]:
    failed = sum(row.result != "ok" for row in rows)
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    commits = sorted({row.commit for row in rows if row.commit})
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    return [
        f"Fault bench, {title}: {len(rows) - failed} of {len(rows)} runs ok",
        f"{date}, {machine}, " + (f"commit {', '.join(commits)}" if commits else "commit unknown"),
        "recovery: seconds from the fault until the work that it hit ran again",
    ]


def _table(rows: Sequence[Row]) -> list[str]:
    order = [one.name for one in CASES]
    lines = [f"{'case':<13}{'broker-store-ack-pool':<34}{'result':<9}recovery"]
    for name in sorted({row.case for row in rows}, key=order.index):
        lines.append(f"-- {name}: {case(name).about}")
        for row in sorted((row for row in rows if row.case == name), key=lambda row: row.combination):
            seconds = "" if row.recovery is None else f"{row.recovery:.1f} s"
            lines.append(f"{row.case:<13}{row.combination:<34}{row.result:<9}{seconds}".rstrip())
    return lines
