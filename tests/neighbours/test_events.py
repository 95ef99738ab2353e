"""Events and ``inspect``, as Flower reads them: a dropped duplicate, a retry and a restore say nothing false."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from celery.events.state import State

from tests.integration.embedded import Shop, until
from tests.neighbours.conftest import bodies, send_again


@pytest.fixture
def made(made: Shop) -> Shop:
    made.app.conf.update(worker_enable_remote_control=True, task_send_sent_event=True, task_track_started=True)
    bodies(made)
    return made


def _state() -> Any:
    """Flower's own, where it is installed."""
    try:
        from flower.events import EventsState
    except ImportError:
        return State()
    return EventsState()


@contextmanager
def _watched(made: Shop) -> Iterator[tuple[Any, list[dict[str, Any]]]]:
    state, heard, ended = _state(), [], threading.Event()

    def hear(event: dict[str, Any]) -> None:
        heard.append(event)
        state.event(event)

    def listen() -> None:
        with made.app.connection_for_read() as connection:
            receiver = made.app.events.Receiver(connection, handlers={"*": hear})
            with receiver.consumer_context(limit=None, timeout=None, wakeup=True) as (own, _, _):
                ready.set()
                while not ended.is_set():
                    try:
                        own.drain_events(timeout=0.2)
                    except TimeoutError:
                        pass

    ready = threading.Event()
    thread = threading.Thread(target=listen)
    thread.start()
    assert ready.wait(10)
    try:
        yield state, heard
    finally:
        ended.set()
        thread.join(timeout=10)


def _types(heard: list[dict[str, Any]], task_id: str) -> list[str]:
    return [event["type"] for event in heard if event.get("uuid") == task_id]


def test_a_dropped_duplicate_leaves_a_succeeded_task_as_it_was(made: Shop) -> None:
    with _watched(made) as (state, heard):
        result = made.app.tasks["shop.add"].delay(1, 2)
        send_again(made, lost=False)
        send_again(made, lost=False)
        with made.worker(task_events=True, concurrency=1):
            until(lambda: _types(heard, result.id).count("task-received") == 3, 15, lambda: heard)
            made.ended(result.id)
            until(lambda: "task-succeeded" in _types(heard, result.id), 15, lambda: heard)
    seen = state.tasks[result.id]
    assert (seen.state, seen.result, made.log) == ("SUCCESS", "3", [(1, 2)])
    assert set(_types(heard, result.id)) == {"task-sent", "task-received", "task-started", "task-succeeded"}
    assert _types(heard, result.id).count("task-succeeded") == 1


def test_a_lost_lease_says_nothing_and_the_next_run_succeeds(made: Shop) -> None:
    with _watched(made) as (state, heard):
        result = made.app.tasks["shop.robbed"].delay("noticed")
        with made.worker(task_events=True):
            made.ended(result.id)
            until(lambda: "task-succeeded" in _types(heard, result.id), 15, lambda: heard)
    assert state.tasks[result.id].state == "SUCCESS"
    assert not {"task-failed", "task-retried", "task-rejected", "task-revoked"} & set(_types(heard, result.id))


def test_a_retry_and_a_failure_are_told_once(made: Shop) -> None:
    with _watched(made) as (state, heard):
        again, failed = (made.app.tasks[f"shop.{name}"].delay() for name in ("again", "fail"))
        with made.worker(task_events=True):
            for result in (again, failed):
                made.ended(result.id)
            until(lambda: "task-failed" in _types(heard, failed.id), 15, lambda: heard)
            until(lambda: "task-succeeded" in _types(heard, again.id), 15, lambda: heard)
    assert (state.tasks[again.id].state, state.tasks[failed.id].state) == ("SUCCESS", "FAILURE")
    assert _types(heard, again.id).count("task-retried") == _types(heard, failed.id).count("task-failed") == 1


def test_inspect_shows_a_durable_task_while_it_runs_and_not_after(made: Shop) -> None:
    began, may_end = threading.Event(), threading.Event()

    @made.app.task(shared=False, name="shop.held")
    def held() -> None:
        began.set()
        may_end.wait(30)

    def active() -> list[str]:
        answers = made.app.control.inspect(timeout=2).active() or {}
        return [one["id"] for tasks in answers.values() for one in tasks]

    result = held.delay()
    send_again(made, lost=False)
    with made.worker():
        assert began.wait(15)
        until(lambda: active() == [result.id], 15, active)
        (registered,) = made.app.control.inspect(timeout=2).registered().values()
        assert "shop.held" in registered
        may_end.set()
        made.ended(result.id)
        until(lambda: active() == [], 15, active)
