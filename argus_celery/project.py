"""Project: the durable unit a user enqueues into, steers and watches."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from itertools import islice
from types import TracebackType
from typing import Any

from argus_celery.context import joining
from argus_celery.errors import ProjectClosed, ProjectNotFound, StoreUnavailable
from argus_celery.flow import steer
from argus_celery.flow.checks import check_name
from argus_celery.hooks import batch
from argus_celery.hooks.durable import is_durable_name
from argus_celery.records import ProjectInfo, ProjectStatus
from argus_celery.store import reports

BATCH = 500
POLL_FROM, POLL_TO = 0.02, 0.5

# Of this context: the same project may be entered by many threads, and twice by one.
_blocks: ContextVar[tuple[AbstractContextManager[None], ...]] = ContextVar("argus_blocks", default=())


class Project:
    """One project of an app, made by its name if there is none. ``with project:`` lets durable calls inside join it."""

    def __init__(self, argus: Any, name: str) -> None:
        check_name("a project's name", name)
        self.name = name
        self._argus = argus
        steer.open_project(argus.runtime, name)

    def __repr__(self) -> str:
        return f"<Project {self.name!r}>"

    def __enter__(self) -> Project:
        block = joining(self.name)
        block.__enter__()
        _blocks.set((*_blocks.get(), block))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leaving the block closes nothing."""
        *outer, block = _blocks.get()
        _blocks.set(tuple(outer))
        block.__exit__(kind, error, trace)

    # --- enqueue ---------------------------------------------------------------------------------------------------

    def enqueue(self, signature: Any, key: str | None = None) -> Any:
        """Send a signature as Celery would, in this project; returns what its ``apply_async`` returns.

        ``key`` is the caller's name for one task: enqueued again, it leads to the first one. Raises ``ProjectClosed``,
        and ``StoreUnavailable`` with nothing published.
        """
        self._check(signature, key)
        with joining(self.name):
            return signature.apply_async(**({"argus_key": key} if key is not None else {}))

    def enqueue_many(self, signatures: Iterable[Any]) -> list[Any]:
        """Send many signatures; their results in order. One transaction and one pipelined publish per 500.

        An error leaves the batches before it enqueued; give keys (``sig.set(argus_key=...)``) to be able to repeat.
        """
        results: list[Any] = []
        for some in _batches(signatures, BATCH):
            for signature in some:
                self._check(signature, None)
            with joining(self.name):
                results += batch.apply_all(self._argus, some)
        return results

    def _check(self, signature: Any, key: str | None) -> None:
        name = signature.task
        if name.startswith("celery."):  # a chain, group or chord, whose tasks decide one by one
            if key is not None:
                raise ValueError(f"a key names one task, and {signature!r} is several: give each its own")
        elif not is_durable_name(self._argus.app, name):
            raise ValueError(f"{name} is not durable, and a project holds durable tasks: decorate it with @durable")

    # --- steer -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """No more tasks from outside; children, retries and continuations still come. It completes when drained."""
        self._check_can_end()
        steer.close(self._argus.runtime, self.name)

    def pause(self) -> None:
        """Nothing that waits is started any more; what runs goes on."""
        steer.pause(self._argus.runtime, self.name)

    def resume(self) -> None:
        """What was due while the project was paused is due now."""
        steer.resume(self._argus.runtime, self.name)

    def cancel(self) -> None:
        """End what waits. A task that runs may finish: its outcome stands, and nothing follows it."""
        self._check_can_end()
        steer.cancel(self._argus.runtime, self.name)

    def _check_can_end(self) -> None:
        if self.name == self._argus.settings.default_project:
            raise ProjectClosed(
                f"project {self.name!r} takes every call outside a project and never ends: name a project of its own"
            )

    # --- watch -----------------------------------------------------------------------------------------------------

    @property
    def status(self) -> ProjectStatus:
        return self.progress().status

    def progress(self) -> ProjectInfo:
        """Status, times, and the tasks counted by state."""
        info = reports.project_info(self._argus.runtime.store, self.name)
        if info is None:
            raise ProjectNotFound(f"project {self.name!r} is gone (pruned)")
        return info

    def join(self, timeout: float | None = None) -> ProjectStatus:
        """Wait until the project has ended, or has drained if it is still open; returns its status.

        Raises ``TimeoutError``. A store that is away is waited for.
        """
        for _ in _pauses(timeout, self.name):
            try:
                status = self._settled()
            except StoreUnavailable:
                continue
            if status is not None:
                return status
        raise AssertionError("unreachable")

    def _settled(self) -> ProjectStatus | None:
        pulse = reports.pulse(self._argus.runtime.store, self.name)
        if pulse is None:
            raise ProjectNotFound(f"project {self.name!r} is gone (pruned)")
        if pulse.alive:
            return None
        if pulse.status is ProjectStatus.CLOSED:
            steer.try_complete(self._argus.runtime, self.name)
            return self.progress().status
        return pulse.status


def _batches(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    remaining = iter(items)
    while some := list(islice(remaining, size)):
        yield some


def _pauses(timeout: float | None, name: str) -> Iterator[None]:
    """Look at once, then ever more rarely, until the time is over."""
    ends = time.monotonic() + timeout if timeout is not None else float("inf")
    pause = POLL_FROM
    while True:
        yield
        left = ends - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"project {name!r} has not ended within {timeout:g} s")
        time.sleep(min(pause, left))
        pause = min(pause * 1.5, POLL_TO)
