"""Rows of steps on each database: written under a claim only, in one statement, and found again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from argus_celery.errors import LeaseLost
from argus_celery.flow.step import record, record_all
from argus_celery.store import steps
from argus_celery.store.engine import DuplicateRow
from tests.store.bench import Bench, counted


def known(bench: Bench, task_id: str) -> dict[str, bytes | None]:
    return bench.store.statement(lambda connection: steps.names(connection, task_id))


def test_a_step_is_one_statement_in_autocommit_however_many_are_written(bench: Bench) -> None:
    claim = bench.running()
    for rows in ({"one": b"1"}, {f"item {n}": None for n in range(50)}):
        with counted(bench.store) as count:
            record_all(bench.rt, claim, rows)
        assert (count.transactions, count.statements) == (1, 1)
    assert len(known(bench, claim.task_id)) == 51


def test_what_was_kept_is_read_whatever_it_holds(bench: Bench) -> None:
    claim = bench.running()
    rows = {
        "plain": b"1",
        "bytes \u2713 '\"\\ %s :x": bytes(range(256)),
        "empty": b"",
        "nothing": None,
        "x" * 255: b"1",
    }
    record_all(bench.rt, claim, rows)
    assert known(bench, claim.task_id) == rows


def test_names_are_told_apart_by_the_letter(bench: Bench) -> None:
    claim = bench.running()
    rows = {"fetch": b"1", "Fetch": b"2", "fétch": b"3", "fetch ​": b"4", "fe\u0301tch": b"5"}
    record_all(bench.rt, claim, rows)
    assert known(bench, claim.task_id) == rows


def test_a_large_value_is_read_when_it_is_asked_for(bench: Bench) -> None:
    claim = bench.running()
    large = bytes(range(256)) * 5000
    record(bench.rt, claim, "large", large)
    record(bench.rt, claim, "small", large[: steps.SMALL])
    assert known(bench, claim.task_id) == {"large": None, "small": large[: steps.SMALL]}
    assert bench.store.statement(lambda connection: steps.value(connection, claim.task_id, "large")) == large


def test_nothing_is_written_under_a_claim_that_is_not_held(bench: Bench) -> None:
    claim = bench.running()
    for other in (replace(claim, token=claim.token - 1), replace(claim, holder="w2"), replace(claim, task_id="none")):
        with pytest.raises(LeaseLost):
            record(bench.rt, other, "one", b"1")
    assert known(bench, claim.task_id) == {}


def test_a_name_that_another_run_has_recorded_is_not_written_over(bench: Bench) -> None:
    claim = bench.running()
    record(bench.rt, claim, "one", b"1")
    record(bench.rt, claim, "one", b"1")  # of the same run it is taken for a commit whose answer was lost
    write = {"one": b"2", "two": b"2"}
    taken = replace(claim, token=claim.token + 1)
    with bench.store.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE argus_leases SET token = token + 1")
    with pytest.raises(DuplicateRow):
        record_all(bench.rt, taken, write)
    assert known(bench, claim.task_id) == {"one": b"1"}
