"""What the runs showed, as text."""

from __future__ import annotations

import datetime
import os
import platform
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import celery

from tests.compat import judging
from tests.compat.judging import Ended, Verdict
from tests.compat.pairs import Pair

FILE = Path(__file__).with_name("last-result.txt")
Run = Mapping[str, Ended]


def counts(ended: Run) -> str:
    found = Counter(one.outcome for one in ended.values())
    subtests = sum(one.subtests for one in ended.values())
    seconds = sum(one.seconds for one in ended.values())
    kinds = ", ".join(f"{found[kind]} {kind}" for kind in ("passed", "failed", "skipped"))
    return f"{kinds}; {subtests} subtests; {seconds / 60:.0f} min"


def verdict_lines(verdict: Verdict) -> Iterator[str]:
    for one in verdict.broken:
        yield f"  FAILS ONLY WITH ARGUS  {one.test}: {_first_line(one.why)}"
    for entry in verdict.stale:
        yield f"  PASSES, BUT IS IN differences.toml  {entry.test}"
    for entry in verdict.known:
        yield f"  differs  {entry.test}: {entry.reason}"
    for one in verdict.foreign:
        yield f"  fails without argus too  {one.test}: {_first_line(one.why)}"


def full(runs: Mapping[Pair, Run]) -> tuple[str, bool]:
    """The text of last-result.txt, and whether something in it must not be."""
    lines, bad = [*_head(), ""], False
    for pair, ended in runs.items():
        lines.append(f"{pair.name}{f', store on {pair.store}' if pair.store else ''}: {counts(ended)}")
        if pair.store:
            verdict = judging.judge(pair.name, ended, runs.get(pair.baseline, {}), judging.table())
            lines += [*verdict_lines(verdict), *_skips(ended, runs.get(pair.baseline, {}))]
            bad |= verdict.bad
        else:
            if any(len(ended) < len(durable) for durable in runs.values()):
                lines.append("  of these only tests that failed with argus, or that were asked for, have been run")
            lines += [f"  fails  {one.test}: {_first_line(one.why)}" for one in judging.failed_in(ended)]
    return "\n".join(lines) + "\n", bad


def _head() -> list[str]:
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    return [f"Celery {celery.__version__}'s integration suite, every task durable", f"{date}, {machine}"]


def _skips(ended: Run, baseline: Run) -> Iterator[str]:
    """Tests that the suite itself leaves out on this pair."""
    left_out = [
        one for one in ended.values() if one.outcome == "skipped" and baseline.get(one.test, one).outcome != "skipped"
    ]
    for why, number in Counter(one.why.removeprefix("Skipped: ") for one in left_out).most_common():
        yield f"  left out by the suite  {number}: {why}"


def _first_line(text: str) -> str:
    return text.splitlines()[0][:160] if text else ""
