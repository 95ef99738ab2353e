"""What a run shows about argus: the tests that only fail with it, held against the table of known differences. Pure."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).with_name("differences.toml")


@dataclass(frozen=True, slots=True)
class Ended:
    """How one test ended: passed, failed or skipped, with the reason if it did not pass."""

    test: str
    outcome: str
    why: str = ""
    subtests: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Difference:
    """A line of the table; without pairs it is meant for every pair. ``sometimes``: it may pass as well."""

    test: str
    reason: str
    pairs: tuple[str, ...] = ()
    sometimes: bool = False

    def concerns(self, pair: str) -> bool:
        return not self.pairs or pair in self.pairs


@dataclass(frozen=True, slots=True)
class Verdict:
    """``broken`` and ``stale`` are what must not be; ``known`` is in the table, ``foreign`` fails without argus too."""

    broken: tuple[Ended, ...]
    known: tuple[Difference, ...]
    stale: tuple[Difference, ...]
    foreign: tuple[Ended, ...]

    @property
    def bad(self) -> bool:
        return bool(self.broken or self.stale)


def judge(
    pair: str, durable: Mapping[str, Ended], baseline: Mapping[str, Ended], table: Sequence[Difference]
) -> Verdict:
    known = {one.test: one for one in table if one.concerns(pair)}
    failed = failed_in(durable)
    ours = [one for one in failed if one.test not in baseline or baseline[one.test].outcome != "failed"]
    return Verdict(
        broken=tuple(one for one in ours if one.test not in known),
        known=tuple(known[one.test] for one in ours if one.test in known),
        stale=tuple(one for test, one in known.items() if not one.sometimes and _passed(durable, test)),
        foreign=tuple(one for one in failed if one not in ours),
    )


def _passed(ended: Mapping[str, Ended], test: str) -> bool:
    return test in ended and ended[test].outcome == "passed"


def failed_in(ended: Mapping[str, Ended]) -> list[Ended]:
    return [one for one in ended.values() if one.outcome == "failed"]


def table(file: Path = TABLE) -> list[Difference]:
    entries = tomllib.loads(file.read_text()).get("difference", [])
    return [
        Difference(entry["test"], entry["reason"], tuple(entry.get("pairs", ())), entry.get("sometimes", False))
        for entry in entries
    ]
