"""What every benchmark prints: the machine and the day, then tables; `--write` keeps it in benchmarks/results."""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

RESULTS = Path(__file__).parent.parent / "results"
PACKAGES = ("celery", "kombu", "redis", "SQLAlchemy", "psycopg")


def parser(doc: str | None) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=(doc or "").split("\n\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    made.add_argument("--write", action="store_true", help="keep what is printed in benchmarks/results/")
    return made


class Report:
    """Prints as it comes, and keeps it."""

    def __init__(self, name: str, write: bool) -> None:
        self.name, self.to_write = name, write
        self.lines: list[str] = []
        given = ["…" if "/" in one else one for one in sys.argv[1:] if one != "--write"]
        self.say(" ".join([f"./dev bench {name}", *given]))
        self.say(machine())

    def say(self, text: str = "") -> None:
        self.lines += text.split("\n")
        print(text, flush=True)

    def table(self, rows: Sequence[Sequence[str]]) -> None:
        """The first row is the heading, the first column names the rows."""
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        self.say()
        for row in rows:
            self.say("  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip())

    @staticmethod
    def progress(text: str) -> None:
        """For who looks on; not kept."""
        print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)

    def close(self) -> None:
        self.say(f"\nload at the end {os.getloadavg()[0]:.1f}")
        if self.to_write:
            path = RESULTS / f"{time.strftime('%Y-%m-%d')}-{self.name}.txt"
            path.write_text("\n".join(self.lines) + "\n")
            print(f"kept in {path}")


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    here = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {memory:.0f} GiB"
    return (
        f"{time.strftime('%Y-%m-%d %H:%M')}, {here}, load {os.getloadavg()[0]:.1f}\n"
        f"Python {platform.python_version()}, {', '.join(map(_version, PACKAGES))}"
    )


def _version(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"no {package}"


# --- cells ------------------------------------------------------------------------------------------------------------


def median(values: Sequence[float], digits: int = 0) -> str:
    return f"{statistics.median(values):,.{digits}f}" if values else "-"


def ranged(values: Sequence[float], digits: int = 2) -> str:
    """The median, with the range where there is one."""
    if not values:
        return "-"
    middle = median(values, digits)
    return middle if len(values) == 1 else f"{middle} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def ratios(values: Sequence[float], bases: Sequence[float]) -> list[float]:
    """Of each round to the base of the same round."""
    return [value / base for value, base in zip(values, bases, strict=False) if base]


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]
