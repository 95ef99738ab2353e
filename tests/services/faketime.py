"""A wall clock that is off, in one process and its children: libfaketime (Debian: ``faketime``), preloaded.

Not its build for threads: that takes a lock in every call, which a fork may find taken.
"""

from __future__ import annotations

import glob
import os
from pathlib import Path

from tests.services.server import ServiceMissing

ROOT = Path(__file__).resolve().parents[2]
SLEEPING = Path(__file__).resolve().parent / "sleeping"
PLACES = ("/usr/lib/*/faketime", "/usr/lib/faketime", "/usr/lib64/faketime", "/usr/local/lib/faketime")


def library() -> Path:
    """Raises ``ServiceMissing`` where it is not installed."""
    given = os.environ.get("ARGUS_TEST_FAKETIME")
    found = [given] if given else [one for place in PLACES for one in glob.glob(f"{place}/libfaketime.so.1")]
    if not found:
        raise ServiceMissing("no libfaketime: install the package faketime, or name the library in ARGUS_TEST_FAKETIME")
    return Path(found[0])


def environment(clock: str) -> dict[str, str]:
    """For a process whose wall clock is off by this much (``+1h``); its monotonic clock stays right."""
    return {
        "PYTHONPATH": os.pathsep.join([str(SLEEPING), str(ROOT)]),
        "LD_PRELOAD": str(library()),
        "FAKETIME": clock,
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DISABLE_SHM": "1",
    }
