"""What the exit codes of all commands mean; docs/cli.md tells them to users."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    DONE = 0
    REFUSED = 1
    """Nothing was done, and a sentence says why: no such project, the store is away, the answer was no."""
    USAGE = 2
    """The command line cannot be meant so (click's own code)."""
    FAILURES = 3
    """All was shown, and it holds tasks that failed or are dead, so that a script can ask."""
    WARNINGS = 4
    """``doctor`` has looked, and warns."""
    ERRORS = 5
    """``doctor`` has looked, and something does not work or is not safe."""
