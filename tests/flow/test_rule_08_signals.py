"""Rule 8: signals are for observers, sent after the commit they report; nothing depends on a receiver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from celery.utils.dispatch import Signal

from argus_celery import signals
from argus_celery.flow.complete import complete
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.lapse import lapse
from argus_celery.flow.release import release
from argus_celery.flow.renew import renew
from argus_celery.flow.restore import restore
from argus_celery.flow.steer import cancel, close, open_project, pause, resume
from argus_celery.flow.suspend import Wait, suspend
from argus_celery.flow.tell import tell
from argus_celery.records import HolderFacts, Outcome, TaskState
from argus_celery.store import reports
from argus_celery.store.schema import events
from tests.flow.conftest import FlowBench
from tests.store.bench import new_task

ALL = {name: one for name, one in vars(signals).items() if isinstance(one, Signal)}
SENT_BY_RUNS = {"lease_lost", "step_retried"}


@pytest.fixture
def receivers() -> Iterator[Callable[..., None]]:
    """Connect receivers for the length of a test."""
    connected: list[tuple[Signal, Callable[..., None]]] = []

    def connect(signal: Signal, receiver: Callable[..., None]) -> None:
        signal.connect(receiver, weak=False)
        connected.append((signal, receiver))

    yield connect
    for signal, receiver in connected:
        signal.disconnect(receiver)


def a_whole_life(bench: FlowBench) -> None:
    """Everything that is reported happens at least once."""
    rt = bench.rt
    restore(rt, HolderFacts("w1", "n", "h", 1, "b", "p", "s"), lambda one: False)
    open_project(rt, "alpha")
    done = bench.running(project="alpha")
    renew(rt, "w1", [(done.task_id, done.token)])
    release(rt, "w1", [(done.task_id, done.token)], "shutdown")
    done = bench.claim("w1", done.task_id)  # type: ignore[assignment]
    assert bench.claim("w2", done.task_id) is None
    complete(rt, done, Outcome(TaskState.SUCCEEDED))
    close(rt, "alpha")
    broken = bench.running(project="beta")
    complete(rt, broken, Outcome(TaskState.FAILED, error="broke"))
    close(rt, "beta")
    dying = bench.running(max_losses=1)
    lapse(rt, "w1", dying.task_id, dying.token, "signal 9")
    bench.running()
    bench.pass_time(7)
    dispatch(rt)
    open_project(rt, "delta")
    suspend(rt, bench.running(project="delta"), Wait("wait approved", "approved"))
    tell(rt, "delta", "approved", b"1")
    pause(rt, "delta")
    resume(rt, "delta")
    cancel(rt, "delta")


def test_what_a_signal_reports_is_committed_when_it_is_sent(bench: FlowBench, receivers: Callable[..., None]) -> None:
    wrong: list[str] = []

    def expect(signal: Signal, fact: Callable[..., bool]) -> None:
        def look(**payload: Any) -> None:
            if not fact(**payload):
                wrong.append(f"{signal.name} {payload}")

        receivers(signal, look)

    def status(project: str) -> str:
        info = reports.project_info(bench.store, project)
        return str(info and info.status)

    def is_paused(project: str) -> bool:
        info = reports.project_info(bench.store, project)
        return info is not None and info.paused

    expect(signals.project_opened, lambda project, **_: status(project) == "open")
    expect(signals.project_closed, lambda project, **_: status(project) == "closed")
    expect(signals.project_completed, lambda project, **_: status(project) == "completed")
    expect(signals.project_failed, lambda project, **_: status(project) == "failed")
    expect(signals.project_paused, lambda project, **_: is_paused(project))
    expect(signals.project_resumed, lambda project, **_: not is_paused(project))
    expect(signals.project_cancelled, lambda project, **_: status(project) == "cancelled")
    expect(signals.task_enqueued, lambda task_id, **_: bench.task(task_id) is not None)
    expect(signals.task_dispatched, lambda task_id, token, **_: bench.lease(task_id).token == token)
    expect(signals.task_completed, lambda task_id, state, **_: bench.task(task_id).outcome == state)
    expect(signals.task_suspended, lambda task_id, token, **_: _run_ended(bench, task_id, token))
    expect(signals.project_told, lambda project, name, **_: name in _told(bench))
    expect(signals.task_failed, lambda task_id, **_: bench.task(task_id).outcome == "failed")
    expect(signals.task_dead, lambda task_id, **_: bench.task(task_id).outcome == "dead")
    expect(signals.lease_claimed, lambda task_id, holder, **_: bench.lease(task_id).holder == holder)
    expect(signals.lease_released, lambda task_id, holder, **_: bench.lease(task_id).holder != holder)
    expect(signals.lease_lapsed, lambda task_id, token, **_: _run_ended(bench, task_id, token))
    a_whole_life(bench)
    assert wrong == []


def _told(bench: FlowBench) -> set[str]:
    query = sa.select(events.c.name).where(events.c.sent_at.is_not(None))
    return set(bench.store.statement(lambda connection: connection.execute(query).scalars().all()))


def _run_ended(bench: FlowBench, task_id: str, token: int) -> bool:
    return token in [one.token for one in reports.attempt_rows(bench.store, task_id)]


def test_every_signal_of_the_flows_is_sent_with_the_payload_that_its_table_promises(
    bench: FlowBench, receivers: Callable[..., None]
) -> None:
    seen: dict[str, set[str]] = {}

    def note(signal: Signal, sender: str, **payload: Any) -> None:
        assert sender == "tests"
        seen.setdefault(signal.name, set(payload))

    for signal in ALL.values():
        receivers(signal, note)
    a_whole_life(bench)
    assert seen == {name: signal.providing_args for name, signal in ALL.items() if name not in SENT_BY_RUNS}


def test_a_receiver_that_raises_changes_nothing(bench: FlowBench, receivers: Callable[..., None]) -> None:
    def broken(**_: Any) -> None:
        raise RuntimeError("a broken observer")

    for signal in ALL.values():
        receivers(signal, broken)
    a_whole_life(bench)
    claim = bench.running(project="gamma")
    follow_up = new_task(project_id=claim.project_id, inside=True)
    complete(bench.rt, claim, Outcome(TaskState.SUCCEEDED, continuations=(follow_up,)))
    assert bench.sent[-1].task_id == follow_up.id
