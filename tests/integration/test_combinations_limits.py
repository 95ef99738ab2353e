"""Time limits, and bodies that take their process with them (prefork)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from celery.result import AsyncResult

from argus_celery.records import TaskInfo
from argus_celery.store import reports
from argus_celery.store.engine import Store
from tests.faults.ledger import Ledger, wait_for
from tests.faults.setup import Setup
from tests.integration.combination_bodies import make_app
from tests.integration.combinations import Telling, row
from tests.integration.workers import Worker
from tests.services.fresh import fresh_redis

pytestmark = pytest.mark.redis

TITLE = "Time limits and lost processes"

LOSSES = "a process that dies says nothing of the task: it runs again, until `argus_max_losses`"


@dataclass
class Workers(Telling):
    """One prefork worker of this kind, and its producer."""

    setup: Setup
    folder: Path
    nodes: list[Worker] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__("ordinary" if self.setup.stock else "durable")
        self.ledger = Ledger(self.setup.ledger)
        self.app = make_app(self.setup, producer=True)

    def start(self) -> Worker:
        arguments = ["-A", "tests.integration.combination_bodies", "worker", "-P", "prefork", "-c", "1"]
        name = f"w{len(self.nodes)}"
        node = Worker(name, self.setup, self.folder, [*arguments, "-n", f"{name}@test", "-l", "INFO"])
        self.nodes.append(node)
        node.wait_ready()
        return node

    def run(self, name: str, *args: Any, **options: Any) -> AsyncResult:
        """Send it and wait for its end."""
        result = self.send(name, *args, **options)
        wait_for(result.ready, 30, f"{name} ends; {self.nodes[-1].tail(2000)}")
        return result

    def send(self, name: str, *args: Any, **options: Any) -> AsyncResult:
        return self.app.tasks[name].apply_async(args, link_error=self.app.tasks["errback"].s(), **options)

    def count(self, event: str, result: AsyncResult) -> int:
        return len(self.ledger.lines(event, result.id))

    def settled(self) -> None:
        """Whatever followed the end of a task has been: with one process, another one has run behind it."""
        self.run("leaves", "stays")

    def info(self, result: AsyncResult) -> TaskInfo:
        found = reports.task_info(Store(self.setup.store), result.id)
        assert found is not None
        return found

    def clean_up(self) -> None:
        for node in self.nodes:
            node.clean_up()


@pytest.fixture(scope="module", params=["ordinary", "durable"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def _workers(kind: str, redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    folder = tmp_path_factory.mktemp(kind)
    with fresh_redis(redis_url) as redis:
        setup = Setup(
            broker=redis,
            store=f"sqlite:///{folder / 'store.db'}",
            ack="early",
            pool="prefork",
            ledger=str(folder / "ledger"),
            stock=kind == "ordinary",
            results=redis,
            broker_options={},
        )
        made = Workers(setup, folder)
        try:
            made.start()
            yield made
        finally:
            made.clean_up()


@pytest.fixture
def workers(_workers: Workers, request: pytest.FixtureRequest) -> Iterator[Workers]:
    if not _workers.nodes[-1].running:
        _workers.start()
    with _workers.telling(request.function):
        yield _workers


@row("`soft_time_limit=`, not caught", "FAILURE with `SoftTimeLimitExceeded`, once; the process lives")
def test_a_soft_limit(workers: Workers) -> None:
    result = workers.run("slow", soft_time_limit=1)
    assert (result.state, type(result.result).__name__) == ("FAILURE", "SoftTimeLimitExceeded")
    workers.settled()
    counts = {event: workers.count(event, result) for event in ("failure", "on_failure", "after_return", "errback")}
    assert counts == dict.fromkeys(counts, 1)


@row("`soft_time_limit=`, caught", "what the body makes of it: here it returns")
def test_a_soft_limit_that_is_caught(workers: Workers) -> None:
    result = workers.run("slow", True, soft_time_limit=1)
    assert (result.state, result.result) == ("SUCCESS", "caught")


@row(
    "`time_limit=`",
    "the process is killed; FAILURE with `TimeLimitExceeded`, `on_failure` once, `task_failure` and errbacks twice",
    "FAILURE with `TimeLimitExceeded`; `on_failure`, `task_failure` and errbacks once; no loss",
    "a task has one outcome, and it is told once",
)
def test_a_hard_limit(workers: Workers) -> None:
    result = workers.run("slow", time_limit=1)
    assert (result.state, type(result.result).__name__) == ("FAILURE", "TimeLimitExceeded")
    times = workers.either(ordinary=2, durable=1)
    wait_for(lambda: workers.count("errback", result) == times, 20, "errbacks")
    workers.settled()
    counts = [workers.count(event, result) for event in ("run", "failure", "on_failure", "after_return", "errback")]
    assert counts == [1, times, 1, 1, times]
    if workers.kind == "durable":
        assert workers.info(result).losses == 0


@row("both limits, and a body that ignores the soft one", "the hard one ends it: FAILURE with `TimeLimitExceeded`")
def test_a_hard_limit_behind_a_soft_one(workers: Workers) -> None:
    result = workers.run("slow", True, True, soft_time_limit=1, time_limit=2)
    assert (result.state, type(result.result).__name__) == ("FAILURE", "TimeLimitExceeded")
    assert workers.count("run", result) == 1


@row(
    "`acks_late=True, acks_on_timeout=False` and `time_limit=`",
    "requeued and run again, without a limit",
    "FAILURE, once",
    "a limit that is met each time would never end",
)
def test_a_hard_limit_that_is_not_acked(workers: Workers) -> None:
    if workers.either(ordinary=False, durable=True):
        result = workers.run("slow_late", time_limit=1)
        assert (result.state, workers.count("run", result)) == ("FAILURE", 1)
        return
    result = workers.send("slow_late", time_limit=1)
    wait_for(lambda: workers.count("run", result) >= 2, 20, "it runs again")
    workers.nodes[-1].kill()
    workers.app.control.purge()


@pytest.mark.parametrize("how", ["sys.exit", "os._exit", "kill", "KeyboardInterrupt"])
@row(
    "`sys.exit()`, `os._exit()`, SIGKILL, `KeyboardInterrupt` in the body",
    "FAILURE with `WorkerLostError`, `task_failure`, errbacks",
    "a loss: the task runs again; no failure, no errback, `retries` as it was",
    LOSSES,
)
def test_a_body_that_takes_its_process_with_it(workers: Workers, how: str) -> None:
    result = workers.run("leaves", how)
    wanted: Any = workers.either(ordinary=("FAILURE", "WorkerLostError"), durable=("SUCCESS", "str"))
    assert (result.state, type(result.result).__name__) == wanted
    workers.settled()
    again = ["0"] if workers.kind == "ordinary" else ["0", "0"]
    assert [line.detail for line in workers.ledger.lines("run", result.id)] == again
    if workers.kind == "durable":
        assert (workers.count("failure", result), workers.count("errback", result)) == (0, 0)
        assert (workers.info(result).losses, workers.info(result).retries) == (1, 0)


@row(
    "`MemoryError` in the body",
    "`task_failure`, and then the whole worker exits",
    "FAILURE with `MemoryError`, `task_failure` and errbacks once; the worker lives",
    "one task's memory is no reason to stop the others",
)
def test_a_body_that_runs_out_of_memory(workers: Workers) -> None:
    if workers.either(ordinary=False, durable=True):
        result = workers.run("leaves", "MemoryError")
        assert (result.state, type(result.result).__name__) == ("FAILURE", "MemoryError")
        workers.settled()
        assert [workers.count(event, result) for event in ("run", "failure", "errback")] == [1, 1, 1]
        assert workers.nodes[-1].running
        return
    workers.nodes[-1].may_exit = True
    result = workers.send("leaves", "MemoryError")
    workers.nodes[-1].wait_exit(30)
    assert workers.count("failure", result) == 1


@row(
    "`acks_late=True`, and the process is lost",
    "FAILURE with `WorkerLostError`",
    "a loss: the task runs again",
    LOSSES,
)
def test_a_late_ack_and_a_lost_process(workers: Workers) -> None:
    result = workers.run("leaves_late", "kill")
    assert result.state == workers.either(ordinary="FAILURE", durable="SUCCESS")


@row(
    "`reject_on_worker_lost=True` (and `task_reject_on_worker_lost`)",
    "requeued and run again, without a limit",
    "a loss, as without it: the task runs again, until `argus_max_losses`",
    "the store knows that it has to run again, and how often it was lost",
)
def test_reject_on_worker_lost(workers: Workers) -> None:
    result = workers.run("leaves_rejecting", "kill")
    assert (result.state, workers.count("run", result)) == ("SUCCESS", 2)
    if workers.either(ordinary=False, durable=True):
        assert workers.info(result).losses == 1


@row(
    "`retry_on_worker_lost=True`",
    "a retry: `retries` is one more and `max_retries` holds",
    "a loss, as without it: `retries` stays",
    "losses and retries are counted apart",
)
def test_retry_on_worker_lost(workers: Workers) -> None:
    result = workers.run("leaves_retrying", "kill")
    retries = [line.detail for line in workers.ledger.lines("run", result.id)]
    assert retries == workers.either(ordinary=["0", "1"], durable=["0", "0"])
    assert result.state == "SUCCESS"


@row(
    "the process is lost in a retry",
    "FAILURE with `WorkerLostError`",
    "the retry runs again, with the `retries` it had",
    "losses and retries are counted apart",
)
def test_a_loss_in_a_retry(workers: Workers) -> None:
    result = workers.run("leaves_in_retry")
    assert result.state == workers.either(ordinary="FAILURE", durable="SUCCESS")
    retries = [line.detail for line in workers.ledger.lines("run", result.id)]
    assert retries == ["0", "1"] if workers.kind == "ordinary" else ["0", "1", "1"]
    if workers.kind == "durable":
        assert (workers.info(result).retries, workers.info(result).losses) == (1, 1)


@row(
    "a body that kills its process each time (`max_losses=3`)",
    "FAILURE at the first; with `reject_on_worker_lost` it runs without end",
    "a dead letter after three runs: FAILURE with `TaskDead`, a `WorkerLostError`; errbacks once",
    "what cannot run must not cost more than a few processes",
)
def test_a_poisonous_body(workers: Workers) -> None:
    result = workers.run("poison")
    assert (result.state, workers.count("run", result)) == ("FAILURE", workers.either(ordinary=1, durable=3))
    if workers.kind == "durable":
        assert workers.info(result).state == "dead"
        wait_for(lambda: workers.count("errback", result) == 1, 20, "the errback")
