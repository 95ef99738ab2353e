"""The bench of one run: the app as a producer, the nodes, the ledger, and the store as the other witness."""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from celery import Celery, chain, chord
from celery.result import AsyncResult

from tests.faults.app import make_app
from tests.faults.brokers import Broker
from tests.faults.ledger import Ledger, Line, wait_for
from tests.faults.matrix import Combination
from tests.faults.nodes import Node
from tests.faults.setup import Setup, T
from tests.faults.stores import StorePlace

ENDED = {"SUCCESS": "succeeded", "FAILURE": "failed", "REVOKED": "cancelled"}


class Bench:
    def __init__(self, setup: Setup, folder: Path, at: Combination, broker: Broker, place: StorePlace) -> None:
        self.setup, self.folder, self.at = setup, folder, at
        self.broker, self.place = broker, place
        self.ledger = Ledger(setup.ledger)
        self.nodes: list[Node] = []
        self.accepted: list[str] = []
        self.recovery: float | None = None
        self.app: Celery = make_app(setup, producer=True)
        if not setup.stock:
            self._init_store()

    def _init_store(self) -> None:
        """What ``celery argus init`` does."""
        from argus_celery.store import setup

        setup.init(self.store)

    # What is sent

    def send(self, body: str, *arguments: Any, **options: Any) -> str:
        """Call a task; its id. What was accepted has to end."""
        link_error = self.app.signature("errback") if options.pop("errback", False) else None
        result = self.app.tasks[body].apply_async(arguments, link_error=link_error, **options)
        self.accepted.append(result.id)
        return str(result.id)

    def send_many(self, body: str, tags: Sequence[str], project: str, *more: Any, **options: Any) -> list[str]:
        """Many calls of a task in one project."""
        signatures = [self.app.tasks[body].s(tag, *more).set(**options) for tag in tags]
        if self.setup.stock:
            results = [signature.apply_async() for signature in signatures]
        else:
            results = self.project(project).enqueue_many(signatures)
        self.accepted += [str(one.id) for one in results]
        return [str(one.id) for one in results]

    def project(self, name: str) -> Any:
        from argus_celery import Argus

        argus = Argus.of(self.app)
        assert argus is not None
        return argus.project(name)

    def send_chain(self, *signatures: Any) -> list[str]:
        """A chain; the ids of its parts."""
        result = chain(*signatures).apply_async()
        ids = [str(result.id)]
        while (result := result.parent) is not None:
            ids.insert(0, str(result.id))
        self.accepted += ids
        return ids

    def send_chord(self, *header: Any) -> str:
        """A chord over ``gather`` with an errback; the id of its body, which need not come to run."""
        body = self.app.signature("gather").on_error(self.app.signature("errback"))
        signatures = [one.clone() for one in header]
        for one in signatures:
            one.freeze()
        self.accepted += [one.options["task_id"] for one in signatures]
        return str(chord(signatures, body, app=self.app).apply_async().id)

    # What runs

    def worker(self, name: str, concurrency: int = 1, *arguments: str, **changes: Any) -> Node:
        """A worker that consumes by now."""
        node = self.launch(name, concurrency, *arguments, **changes)
        node.wait_ready()
        return node

    def launch(self, name: str, concurrency: int = 1, *arguments: str, **changes: Any) -> Node:
        """A worker that boots."""
        size = [] if self.at.pool == "solo" else ["-c", str(concurrency)]
        call = ["worker", "-n", f"{name}@%h", "-P", self.at.pool, *size, "-l", "INFO", "--without-mingle", *arguments]
        return self._node(name, call, changes)

    def join_queue(self, node: Node, queue: str = "celery") -> None:
        """Let a worker consume from one queue more."""
        name = f"{node.name}@{socket.gethostname()}"
        answers = self.app.control.add_consumer(queue, destination=[name], reply=True, timeout=T)
        assert answers, f"{name} did not answer"

    def beat(self, name: str = "beat", **changes: Any) -> Node:
        return self._node(name, ["beat", "-s", str(self.folder / name), "-l", "INFO"], changes)

    def command(self, name: str, *arguments: str) -> Node:
        """``celery argus …``, which ends by itself."""
        node = self._node(name, ["argus", *arguments], {})
        node.may_exit = True
        return node

    def _node(self, name: str, call: list[str], changes: dict[str, Any]) -> Node:
        node = Node(name, replace(self.setup, **changes), self.folder, call)
        self.nodes.append(node)
        return node

    # What is seen

    def outcome(self, task_id: str) -> str:
        """How the system believes the task ended; empty while it has not."""
        if self.setup.stock:
            return ENDED.get(AsyncResult(task_id, app=self.app).state, "")
        from argus_celery.errors import StoreUnavailable

        try:
            info = self.info(task_id)
        except StoreUnavailable:
            return ""
        return str(info.state) if info and info.state.ended else ""

    def wait_ended(self, *tasks: str, within: float = T) -> None:
        wait_for(lambda: all(map(self.outcome, tasks)), within, f"the end of {len(tasks)} tasks")

    def info(self, task_id: str) -> Any:
        from argus_celery.store import reports

        return reports.task_info(self.store, task_id)

    @staticmethod
    def now() -> float:
        return time.time()

    @property
    def store(self) -> Any:
        return self.runtime.store

    @property
    def runtime(self) -> Any:
        from argus_celery import Argus

        argus = Argus.of(self.app)
        assert argus is not None
        return argus.runtime

    def times(self, event: str, tags: Sequence[str]) -> dict[str, int]:
        """How often each tag has this event in the ledger."""
        found = Counter(line.tag for line in self.ledger.lines(event))
        return {tag: found[tag] for tag in tags}

    def wait_prefetched(self) -> None:
        """No message waits in the broker. Solo and gevent take none beside those that run."""
        if self.at.pool in ("prefork", "threads"):
            wait_for(lambda: self.broker.ready() == 0, 10, "every message has been prefetched")

    def recovered(self, fault: float, line: Line, within: float) -> None:
        """Assert the time bound of a case: this line came in time after the fault; noted in the report."""
        took = line.time - fault
        self.recovery = max(self.recovery or 0.0, took)
        assert took <= within, f"{line.event} {line.tag} came {took:.1f} s after the fault, allowed are {within:.1f} s"

    def clean_up(self) -> None:
        for node in self.nodes:
            node.clean_up()
        self.app.close()
        if not self.setup.stock:
            self.store.dispose()
