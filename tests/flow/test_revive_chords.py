"""A header task that is put back has its word in its chord once more, whatever the chord was told in its stead."""

from __future__ import annotations

import pytest

from argus_celery.flow import chords
from argus_celery.flow.chords import Leading
from argus_celery.flow.complete import complete
from argus_celery.flow.revive import Knowledge, retry_failed
from argus_celery.records import ChordPart, Claim, NewChord, Outcome, PartCount, TaskState
from tests.flow.conftest import FlowBench

AS_USUAL = Knowledge(lambda name: None, lambda message: ())


def header(bench: FlowBench) -> tuple[Claim, Claim]:
    chords.begin(bench.rt, NewChord("chord", b"body", size=2), anew=False)
    return bench.running(), bench.running()


def ended(claim: Claim, position: int, state: str) -> Outcome:
    part = ChordPart("chord", claim.task_id, position, state, state.encode())
    outcome = TaskState.SUCCEEDED if state == "SUCCESS" else TaskState.FAILED
    return Outcome(outcome, part=part)


def parts(bench: FlowBench) -> list[bytes]:
    owed = chords.read_owed(bench.rt, "chord")
    assert owed is not None
    return [part.result for part in owed.parts]


def fire(bench: FlowBench) -> bool:
    owed = chords.read_owed(bench.rt, "chord")
    assert owed is not None
    assert owed.project_id is not None
    return chords.settle(bench.rt, owed, owed.project_id, Leading())


def again(bench: FlowBench, claim: Claim) -> Claim:
    bench.history.check()
    bench.history.revived.add(claim.task_id)
    assert retry_failed(bench.rt, "default", AS_USUAL) == [claim.task_id]
    granted = bench.claim("w2", claim.task_id)
    assert granted is not None
    return granted


@pytest.mark.parametrize("fired", [True, False])
def test_a_chord_is_owed_its_body_once_more_when_its_failed_part_has_succeeded(bench: FlowBench, fired: bool) -> None:
    one, two = header(bench)
    complete(bench.rt, one, ended(one, 0, "FAILURE"))
    complete(bench.rt, two, ended(two, 1, "SUCCESS"))
    assert parts(bench) == [b"FAILURE", b"SUCCESS"]
    if fired:
        assert fire(bench)
    second = again(bench, one)
    assert chords.read_owed(bench.rt, "chord") is None, "a part is missing now"
    complete(bench.rt, second, ended(one, 0, "SUCCESS"))
    assert parts(bench) == [b"SUCCESS", b"SUCCESS"]
    assert fire(bench)


def test_what_is_told_too_late_of_the_first_failure_does_not_stand_above_the_second_run(bench: FlowBench) -> None:
    one, two = header(bench)
    complete(bench.rt, one, Outcome(TaskState.FAILED, error="broke"))
    complete(bench.rt, two, ended(two, 1, "SUCCESS"))
    second = again(bench, one)
    late = ChordPart("chord", one.task_id, 0, "FAILURE", b"late")
    assert chords.part_returned(bench.rt, late) is PartCount.READY
    assert fire(bench)
    complete(bench.rt, second, ended(one, 0, "SUCCESS"))
    assert parts(bench) == [b"SUCCESS", b"SUCCESS"]
    assert chords.part_returned(bench.rt, late) is PartCount.READY
    assert parts(bench) == [b"SUCCESS", b"SUCCESS"]
