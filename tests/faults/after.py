"""What has to hold after every case, whatever was done in it."""

from __future__ import annotations

import time
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

import sqlalchemy as sa

from tests.faults import business
from tests.faults.ledger import Line, wait_for
from tests.faults.setup import T

if TYPE_CHECKING:
    from tests.faults.bench import Bench


def check(bench: Bench) -> None:
    every_accepted_task_ended_once(bench)
    tokens_rose_over_the_runs(bench)
    no_old_token_wrote(bench)
    no_main_process_exited(bench)


def every_accepted_task_ended_once(bench: Bench) -> None:
    wait_for(lambda: all(map(bench.outcome, bench.accepted)), T, "every accepted task has ended")
    if bench.setup.stock:
        return
    from tests.invariants import check_all_ended

    deadline = time.monotonic() + T
    while True:
        try:
            return check_all_ended(bench.store)
        except AssertionError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.2)


def tokens_rose_over_the_runs(bench: Bench) -> None:
    """Each start bears a token above that of the one before, whatever process wrote it."""
    if bench.setup.stock:
        return
    begun = [line for line in bench.ledger.lines() if line.event in ("start", "run")]
    by_task = groupby(sorted(begun, key=lambda line: line.task_id), key=lambda line: line.task_id)
    for task_id, lines in by_task:
        tokens = [line.token for line in lines]
        assert all(old < new for old, new in pairwise(tokens)), f"{task_id} ran under {tokens}"


def no_old_token_wrote(bench: Bench) -> None:
    """The outcome was written by the newest token that was ever granted, and so was each effect in its time."""
    if bench.setup.stock:
        return
    from argus_celery.store.schema import tasks

    granted: dict[str, int] = {}
    for line in bench.ledger.lines("claimed"):
        granted[line.task_id] = max(line.token, granted.get(line.task_id, 0))
    with bench.store.engine.connect() as connection:
        fences = {row.id: row.fence for row in connection.execute(sa.select(tasks.c.id, tasks.c.fence))}
    for task_id, token in granted.items():
        assert fences[task_id] >= token, f"{task_id} was ended by token {fences[task_id]}, {token} had been granted"
    for tag in {line.tag for line in _starts(bench)}:
        written = business.tokens_of(bench.setup.store, tag)
        assert written == sorted(written), f"effects of {tag} were written under {written}"


def _starts(bench: Bench) -> list[Line]:
    return bench.ledger.lines("start")


def no_main_process_exited(bench: Bench) -> None:
    gone = [node for node in bench.nodes if not node.may_exit and not node.running]
    assert not gone, "\n".join(f"{node.name} exited {node.process.returncode}:\n{node.tail()}" for node in gone)
