"""How far the work is: the ledger, read on as it grows."""

from __future__ import annotations

import json
from pathlib import Path

from tests.faults.ledger import Line

DONE = ("run", "end")
"""What a body notes when its work is done."""


class Progress:
    def __init__(self, ledger: str | Path, *, keep: bool = True) -> None:
        self.path, self._keep = Path(ledger), keep
        self.lines: list[Line] = []
        self.done: set[str] = set()
        """Tags of what was done at least once."""
        self.ready: set[int] = set()
        """Main processes of workers that have come to consume."""
        self._offset = 0

    def read_on(self) -> list[Line]:
        """The lines that were written since."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self._offset)
            whole, _, _ = file.read().rpartition(b"\n")
        self._offset += len(whole) + bool(whole)
        new = [Line(**json.loads(one)) for one in whole.splitlines()]
        if self._keep:
            self.lines += new
        self.done.update(line.tag for line in new if line.event in DONE)
        self.ready.update(line.pid for line in new if line.event == "ready")
        return new
