"""The table of combinations: each row is one test that runs on stock Celery and on Argus.

``@row`` stands above a test and says what Celery does and what a durable task does. A row without ``durable`` says
that both do the same, and its test cannot tell them apart; a row with it has to use ``place.either``.
``docs/combinations.md`` is written from these rows: ``python -m tests.integration.combinations``.
"""

from __future__ import annotations

import importlib
import itertools
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from celery import Celery, Task, signals
from celery.contrib.testing.worker import start_worker
from celery.result import AsyncResult
from celery.worker.request import Request

from argus_celery import Argus, durable
from argus_celery.records import TaskInfo
from argus_celery.store import reports
from argus_celery.store.schema import leases, tasks
from tests.integration.embedded import TIMES, until

KINDS = ("ordinary", "durable", "durable, argus")
DOCUMENT = Path(__file__).parents[2] / "docs" / "combinations.md"
MODULES = ("retries", "ends", "times", "calls", "settings", "limits")
SIGNALS = ("prerun", "postrun", "success", "failure", "retry", "revoked", "internal_error")

# --- the rows --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    option: str
    celery: str
    durable: str
    why: str
    test: str

    @property
    def differs(self) -> bool:
        return bool(self.durable)

    def line(self) -> str:
        there = f"{self.durable}. *{self.why}*" if self.differs else "the same"
        return f"| {self.option} | {self.celery} | {there} | `{self.test}` |"


ROWS: dict[str, dict[str, Row]] = defaultdict(dict)
"""By the name of the module that holds the tests, and by test."""


def row(option: str, celery: str, durable: str = "", why: str = "") -> Callable[[Any], Any]:
    """One line of the document, whose test this is."""
    assert bool(durable) == bool(why), f"{option}: a difference has a reason"

    def note(test: Any) -> Any:
        made = Row(option, celery, durable, why, test.__name__)
        ROWS[test.__module__.rpartition("_")[2]][test.__name__] = made
        test.row = made
        return test

    return note


def document() -> str:
    """``docs/combinations.md`` as the rows say it."""
    parts = [_INTRODUCTION]
    for name in MODULES:
        module = importlib.import_module(f"tests.integration.test_combinations_{name}")
        head = ["| option | Celery | durable task | test |", "|---|---|---|---|"]
        title = f"## {module.TITLE}\n\n{(module.__doc__ or '').strip()}"
        where = f"Tests: `tests/integration/test_combinations_{name}.py`."
        parts.append("\n".join([title, "", where, "", *head, *(one.line() for one in ROWS[name].values())]))
    return "\n\n".join(parts) + "\n"


_INTRODUCTION = """\
# Combinations

What each option and each end of a task means for a durable task, beside what it means in Celery. Every row is a test
that runs twice, on stock Celery and on Argus; "the same" means that one assertion holds for both. A difference has its
reason in italics. This page is written from the tests: `python -m tests.integration.combinations`."""


# --- what a test sees ------------------------------------------------------------------------------------------------


@dataclass
class Seen:
    """One task, from the call to its end."""

    result: AsyncResult
    runs: list[Any] = field(default_factory=list)
    """``request.retries`` of each run of the body."""
    signals: list[str] = field(default_factory=list)
    handlers: list[str] = field(default_factory=list)

    @property
    def state(self) -> str:
        return str(self.result.state)

    @property
    def value(self) -> Any:
        return self.result.result

    @property
    def error(self) -> str:
        """The type of the error."""
        return type(self.result.result).__name__

    def over(self) -> bool:
        """It has an outcome, and its last run has said all that it says."""
        done = sum(one.startswith("postrun") for one in self.signals)
        return self.result.ready() and self.signals.count("prerun") == done


RUN_AGAIN = ["prerun", "retry", "postrun RETRY"]
SUCCEEDS = ["prerun", "success", "postrun SUCCESS"]
FAILS = ["prerun", "failure", "postrun FAILURE"]
IGNORED = ["prerun", "postrun IGNORED"]


class Telling:
    """Something of one kind, that is asked where the two kinds differ."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.row: Row | None = None
        self.told_apart = False

    def either(self, *, ordinary: Any, durable: Any) -> Any:
        """What is expected where the two differ by intention; only for a row that says so."""
        assert self.row is None or self.row.differs, "the row says that they are the same"
        self.told_apart = True
        return ordinary if self.kind == "ordinary" else durable

    @contextmanager
    def telling(self, test: Any) -> Iterator[None]:
        """A row that names a difference has a test that asserts it, and no other has."""
        self.row, self.told_apart = getattr(test, "row", None), False
        yield
        assert self.row is None or self.told_apart == self.row.differs, f"{self.row.test} asserts no difference"


class Place(Telling):
    """An app of one kind with a worker that runs: every test declares its tasks here."""

    def __init__(self, kind: str, app: Celery, argus: Argus | None) -> None:
        super().__init__(kind)
        self.app, self.argus = app, argus
        self.consumer: Any = None
        self.log: list[Any] = []
        """What bodies write."""
        self.seen: dict[str, Seen] = {}
        self.lock = threading.Lock()
        self._numbers = itertools.count(1)

    @property
    def durable(self) -> bool:
        return self.kind.startswith("durable")

    # --- tasks -----------------------------------------------------------------------------------------------------

    def task(self, body: Any, **options: Any) -> Any:
        """A task with this body, watched; its first argument is the task."""
        place = self

        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            place.of(self.request.id or "direct").runs.append(self.request.retries)
            return body(self, *args, **kwargs)

        base = options.pop("base", None) or self.watched()
        name = options.pop("name", f"{body.__name__}{next(self._numbers)}")
        return self.declare(run, name=name, bind=True, base=base, **options)

    def declare(self, body: Any, **options: Any) -> Any:
        made = self.app.task(body, shared=False, **{"typing": False, **options})
        if self.durable:
            durable(made)
        made.name
        if self.consumer is not None:
            self.consumer.update_strategies()
        return made

    def watched(self) -> type[Task]:
        """A base class whose handlers note that they were called."""
        place = self

        class Watched(Task):  # type: ignore[misc]
            abstract = True

            def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
                place.of(task_id).handlers.append("before_start")

            def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
                place.of(task_id).handlers.append("on_success")

            def on_failure(self, exc: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
                place.of(task_id).handlers.append("on_failure")

            def on_retry(self, exc: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
                place.of(task_id).handlers.append("on_retry")

            def after_return(self, status: str, retval: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
                place.of(task_id).handlers.append(f"after_return {status}")

        return Watched

    def logger(self, name: str) -> Any:
        """A task that writes its name and arguments into the log: for links."""

        def body(_self: Any, *args: Any) -> None:
            self.log.append((name, *args))

        return self.task(body, name=f"{name}{next(self._numbers)}")

    # --- runs ------------------------------------------------------------------------------------------------------

    def of(self, task_id: str) -> Seen:
        with self.lock:
            if task_id not in self.seen:
                self.seen[task_id] = Seen(AsyncResult(task_id, app=self.app))
            return self.seen[task_id]

    def send(self, task: Any, *args: Any, **options: Any) -> Seen:
        return self.of(task.apply_async(args, **options).id)

    def run(self, task: Any, *args: Any, **options: Any) -> Seen:
        """Send it and wait for its end."""
        return self.wait(self.send(task, *args, **options))

    def wait(self, seen: Seen, fact: Callable[[], Any] | None = None) -> Seen:
        until(fact or seen.over, 20, lambda: (self.kind, seen, seen.state))
        return seen

    @property
    def embedded(self) -> bool:
        """Is the store the result backend?"""
        return self.kind == "durable, argus"

    def keeps_no_result(self, seen: Seen) -> bool:
        if self.embedded:
            return self._first(sa.select(tasks.c.result).where(tasks.c.id == seen.result.id))[0] is None
        return self.app.backend.get(self.app.backend.get_key_for_task(seen.result.id)) is None

    # --- the store -------------------------------------------------------------------------------------------------

    def info(self, seen: Seen) -> TaskInfo:
        assert self.argus is not None
        found = reports.task_info(self.argus.runtime.store, seen.result.id)
        assert found is not None
        return found

    def ended(self, seen: Seen) -> TaskInfo:
        until(lambda: self.info(seen).state.ended, 20, lambda: self.info(seen))
        return self.info(seen)

    def lease(self, seen: Seen) -> Any:
        return self._first(sa.select(leases).where(leases.c.task_id == seen.result.id))

    def rows(self) -> int:
        """Tasks in the store; 0 where there is none."""
        return 0 if self.argus is None else int(self._first(sa.select(sa.func.count()).select_from(tasks))[0])

    def _first(self, query: Any) -> Any:
        assert self.argus is not None
        return self.argus.runtime.store.statement(lambda connection: connection.execute(query).first())

    # --- the worker ------------------------------------------------------------------------------------------------

    @contextmanager
    def working(self, **options: Any) -> Iterator[None]:
        """A worker of this place; with one thread, what tasks say comes in order."""
        options = {"pool": "threads", "concurrency": 1, **options}
        with self._listening(), start_worker(self.app, perform_ping_check=False, shutdown_timeout=30, **options) as one:
            self.consumer = one.consumer
            yield
            self.consumer = None

    def scheduled(self) -> list[str]:
        """The tasks that the worker holds until they are due."""
        calls = [one.entry.args for one in list(self.consumer.timer.schedule.queue)]
        return [args[0].id for args in calls if args and isinstance(args[0], Request)]

    @contextmanager
    def _listening(self) -> Iterator[None]:
        receivers = {name: self._receiver(name) for name in SIGNALS}
        for name, receiver in receivers.items():
            getattr(signals, f"task_{name}").connect(receiver, weak=False)
        try:
            yield
        finally:
            for name, receiver in receivers.items():
                getattr(signals, f"task_{name}").disconnect(receiver)

    def _receiver(self, name: str) -> Callable[..., None]:
        def receive(sender: Any = None, task_id: str = "", request: Any = None, state: str = "", **_: Any) -> None:
            if getattr(sender, "app", None) is self.app:
                task_id = task_id or (request.id if request is not None else sender.request.id)
                self.of(task_id).signals.append(f"{name} {state}".strip())

        return receive


def place(kind: str, store: str, redis: str, **conf: Any) -> Place:
    """An app of this kind, with Redis as the broker, and as the result backend unless that is the store."""
    backend = "argus://" if kind == "durable, argus" else redis
    app = Celery(f"shop{next(_numbers)}", broker=redis, backend=backend, set_as_current=False)
    app.conf.update({"broker_connection_retry_on_startup": True, "result_extended": False, **conf})
    argus = Argus(app, store=store, **TIMES) if kind != "ordinary" else None
    return Place(kind, app, argus)


_numbers = itertools.count(1)

if __name__ == "__main__":
    from tests.integration import combinations

    DOCUMENT.write_text(combinations.document())
