"""Where a process can die: around every commit, every message that is published, every signal that is sent. They are
found by counting what an undisturbed process comes to, so that none has to be thought of."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import event

from argus_celery import signals
from argus_celery.records import Dispatch, Publish
from argus_celery.store.engine import Store
from tests.store.bench import stands_alone


@dataclass(frozen=True, slots=True)
class Point:
    name: str
    durable: bool = False
    """Something has just happened that outlives the process: a commit, or a message that left."""

    def __str__(self) -> str:
        return self.name


def that_differ(points: Sequence[Point]) -> list[int]:
    """The numbers of points that leave something else behind than the next: the last before each durable effect, and
    the very last."""
    return [at for at, _ in enumerate(points, 1) if at == len(points) or points[at].durable]


class Fate:
    """Notes the points that this process comes to, and kills it at the one of this number, counted from 1."""

    def __init__(self, at: int | None) -> None:
        self.at = at
        self.points: list[Point] = []

    def __call__(self, name: str, *, durable: bool = False) -> None:
        self.points.append(Point(name, durable))
        if len(self.points) == self.at:
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)  # a signal to oneself may take a moment

    def rule(self, store: Store) -> None:
        """From here on, for what this process does with the store and with signals."""
        engine = store.engine
        event.listen(engine, "commit", self._before_commit)
        event.listen(engine, "after_cursor_execute", self._after_statement)
        engine.dialect.do_commit = self._around(engine.dialect.do_commit)  # type: ignore[method-assign]
        for name, one in vars(signals).items():
            if isinstance(one, signals.Signal):
                one.connect(self._at(f"signal {name}"), weak=False)

    def publishing(self, publish: Publish) -> Publish:
        """Message by message."""

        def deadly(dispatches: Sequence[Dispatch]) -> Sequence[str]:
            failed: list[str] = []
            for one in dispatches:
                self(f"before the message of {one.task_id}")
                failed += publish([one])
                self(f"behind the message of {one.task_id}", durable=True)
            return failed

        return deadly

    def _at(self, point: str) -> Callable[..., None]:
        return lambda **payload: self(point)

    def _before_commit(self, connection: Any) -> None:
        if not stands_alone(connection):
            self("before a commit")

    def _around(self, commit: Callable[[Any], None]) -> Callable[[Any], None]:
        def deadly(connection: Any) -> None:
            commit(connection)
            self("behind a commit", durable=True)

        return deadly

    def _after_statement(self, connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        """One that is its own transaction is committed by now."""
        verb = statement.split(maxsplit=1)[0]
        if stands_alone(connection) and verb in ("INSERT", "UPDATE", "DELETE", "WITH"):
            self(f"behind a statement alone: {verb}", durable=True)
