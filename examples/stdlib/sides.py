"""What differs between plain Celery and argus, seen from whoever enqueues and waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from sqlalchemy.engine import Engine

from examples.stdlib.modules import Sum
from examples.workers import wait_for


class Side(Protocol):
    name: str
    module: str
    database: Engine

    def enqueue(self, paths: list[str]) -> None: ...
    def restore_again(self, restored: Callable[[], bool]) -> int | None: ...
    def wait_drained(self, tick: Callable[[], None]) -> None: ...
    def sum_up(self) -> Sum: ...


class Plain:
    name = module = "plain"

    def __init__(self) -> None:
        from examples.stdlib import plain

        self.tasks = plain
        self.database = plain.database

    def enqueue(self, paths: list[str]) -> None:
        for path in paths:
            self.tasks.parse.delay(path)

    def restore_again(self, restored: Callable[[], bool]) -> int | None:
        return None

    def wait_drained(self, tick: Callable[[], None]) -> None:
        """Plain Celery does not know when it is done: the queue is empty and no worker has anything."""

        def drained() -> bool:
            tick()
            return self._waiting() == 0 and not self._in_hand()

        wait_for(drained, 60, "plain Celery to have nothing left to do")

    def _waiting(self) -> int:
        with self.tasks.app.connection_for_read() as connection:
            queue = self.tasks.app.amqp.queues[self.tasks.app.conf.task_default_queue]
            try:
                return int(queue(connection.default_channel).queue_declare(passive=True).message_count)
            except connection.channel_errors:
                return 0  # Redis forgets an empty queue

    def _in_hand(self) -> bool:
        inspect = self.tasks.app.control.inspect(timeout=2, limit=2)
        answers: list[dict[str, Any]] = [inspect.active() or {}, inspect.reserved() or {}]
        return any(tasks for answer in answers for tasks in answer.values())

    def sum_up(self) -> Sum:
        return Sum(**self.tasks.sum_up.delay().get(timeout=30))


class Durable:
    name, module = "argus", "durable"

    def __init__(self) -> None:
        from examples.stdlib import durable

        self.tasks = durable
        self.database = durable.database
        self.project = durable.argus.project("standard library")

    def enqueue(self, paths: list[str]) -> None:
        self.project.enqueue_many(self.tasks.parse.s(path) for path in paths)
        self.project.close()

    def restore_again(self, restored: Callable[[], bool]) -> int | None:
        """The booting worker has restored; doing it again finds no lapsed lease."""
        from argus_celery.flow import restore

        wait_for(restored, 30, "the killed worker's tasks to run again")
        return len(restore.sweep(self.tasks.argus.runtime).lapsed)

    def wait_drained(self, tick: Callable[[], None]) -> None:
        def ended() -> bool:
            tick()
            return not self.project.status.live

        wait_for(ended, 60, "the project to complete")

    def sum_up(self) -> Sum:
        return Sum(**self.tasks.sum_up.delay().get(timeout=30))
