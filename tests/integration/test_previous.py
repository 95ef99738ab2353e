"""``current.previous``: a run is told how the one before it ended. These are the rows of a table in docs/effects.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from argus_celery.app import Argus
from argus_celery.records import TaskState
from tests.integration.workers import Bench, bench

pytestmark = pytest.mark.redis

PAGE = Path(__file__).parents[2] / "docs" / "effects.md"


@pytest.fixture
def workers(redis_broker: str, tmp_path: Path) -> Iterator[Bench]:
    with bench(redis_broker, tmp_path) as one:
        yield one


def told(workers: Bench, tag: str, within: float = 15) -> str:
    """What the second run was told of the first."""
    return workers.wait("start", tag, count=2, within=within)[1].detail


def test_a_killed_child_and_the_signal_are_named(workers: Bench) -> None:
    node = workers.worker()
    workers.send("remembers", "k", "hang")
    node.kill_child(workers.wait("start", "hanging")[0].pid)
    assert re.fullmatch(r"lost: the process \d+ was lost: .*signal 9 \(SIGKILL\).*", told(workers, "k"))


def test_a_killed_worker_is_told_dead_by_the_next_on_its_host(workers: Bench) -> None:
    node = workers.worker()
    workers.send("remembers", "w", "hang")
    workers.wait("start", "hanging")
    node.kill()
    workers.worker("w2")
    assert told(workers, "w") == "lost: its worker died"


def test_a_body_that_left_its_process_is_told_with_the_exit_code(workers: Bench) -> None:
    workers.worker()
    workers.send("remembers", "e", "exit")
    assert re.fullmatch(r"lost: the process \d+ was lost: SystemExit\(3\)", told(workers, "e"))


def test_want_of_progress_is_told(workers: Bench) -> None:
    workers.worker()
    workers.send("remembers_progress", "p", "hang")
    assert told(workers, "p") == "lost: no progress for 3 s: the lease lapsed"


def test_a_shutdown_is_told(workers: Bench) -> None:
    node = workers.worker()
    workers.send("remembers", "s", "hang")
    workers.wait("start", "hanging")
    node.quit()
    node.wait_exit(8)
    workers.worker("w2")
    assert told(workers, "s") == "released: the worker was stopped"


def test_a_run_that_gave_its_task_back_is_told(workers: Bench) -> None:
    workers.worker()
    workers.send("remembers", "r", "reject")
    assert told(workers, "r") == "released: the body raised Reject(requeue=True)"


def test_a_suspended_run_is_told_with_what_it_waited_for(workers: Bench) -> None:
    workers.worker()
    workers.send("remembers", "z", "sleep")
    assert re.fullmatch(r"suspended: sleeps until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", told(workers, "z"))


def test_a_retry_is_told_with_its_reason(workers: Bench) -> None:
    workers.worker()
    workers.send("remembers", "t", "retry")
    assert told(workers, "t").startswith("retried: ")
    assert "the shop is closed" in told(workers, "t")


@pytest.mark.parametrize(("name", "error"), [("remembers", "no such order"), ("remembers_limit", "TimeLimitExceeded")])
def test_a_failure_and_a_time_limit_are_told_to_the_run_of_a_task_that_was_put_back(
    workers: Bench, name: str, error: str
) -> None:
    workers.worker()
    task_id = workers.send(name, "f", "fail" if name == "remembers" else "hang")
    assert workers.wait_ended(task_id, within=15).state is TaskState.FAILED
    argus = Argus.of(workers.app)
    assert argus is not None
    argus.project("default").retry_failed()
    assert told(workers, "f").startswith("failed: ")
    assert error in told(workers, "f")
