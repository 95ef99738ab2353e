"""The table at the end, and whether everything is as it should be."""

from __future__ import annotations

from rich import box
from rich.table import Table

from examples.stdlib.drain import Tally
from examples.stdlib.modules import Sum


def table(plain: Tally, argus: Tally, expected: Sum) -> Table:
    made = Table(box=box.SIMPLE_HEAD)
    made.add_column("one of two workers killed half-way")
    made.add_column("plain Celery", justify="right")
    made.add_column("argus", justify="right")
    for label, cell in _ROWS:
        made.add_row(label, cell(plain), cell(argus))
    made.add_row("the sum of all modules", _judged(plain.total, expected), _judged(argus.total, expected))
    return made


def _seconds(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.1f}"


_ROWS = [
    ("enqueued", lambda tally: str(tally.enqueued)),
    ("done", lambda tally: str(tally.done)),
    ("lost", lambda tally: str(tally.lost)),
    ("ran twice", lambda tally: str(tally.ran_twice)),
    ("recorded twice", lambda tally: str(tally.recorded_twice)),
    ("seconds from the kill until its tasks ran again", lambda tally: _seconds(tally.again)),
    ("a second restore enqueued", lambda tally: "-" if tally.second_restore is None else str(tally.second_restore)),
]


def _judged(total: Sum, expected: Sum) -> str:
    return "right" if total == expected else f"{expected.lines - total.lines:,} lines short"


def complaints(argus: Tally, expected: Sum) -> list[str]:
    """What is off on the durable side, one sentence each."""
    checks = [
        (argus.lost == 0, f"{argus.lost} tasks were lost"),
        (argus.recorded_twice == 0, f"{argus.recorded_twice} modules were recorded twice"),
        (argus.cut_off > 0, "the kill cut off no running task, so that nothing was shown"),
        (argus.again is not None, "a task of the killed worker never ran again"),
        (argus.second_restore == 0, f"a second restore enqueued {argus.second_restore} tasks"),
        (argus.total == expected, f"the sum is {argus.total}, and computed in process {expected}"),
    ]
    return [sentence for holds, sentence in checks if not holds]
