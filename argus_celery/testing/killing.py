"""Kill after each durable point in turn, go on, and see that nothing is different from a run that nobody disturbed."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from celery import Celery

from argus_celery.app import Argus
from argus_celery.errors import BadEvent, BadStep, BadTask, BadTransaction, NoClaim, PayloadTooLarge
from argus_celery.flow import points
from argus_celery.store.engine import Store
from argus_celery.store.fresh import empty
from argus_celery.store.horizon import Horizon, horizon
from argus_celery.store.listings import TaskFilter, list_tasks
from argus_celery.testing import stores
from argus_celery.testing.apart import ApartError, Ended, apart
from argus_celery.testing.clock import Clock, ClockedStore
from argus_celery.testing.comparing import Report, Trial, differences
from argus_celery.testing.ledger import BadEffect, Ledger
from argus_celery.testing.moving import moved
from argus_celery.testing.options import OWN, check_calls, check_kinds, check_numbers, check_settings, check_work
from argus_celery.testing.watching import POINTS, Point, Watcher
from argus_celery.testing.working import work_until_idle

__tracebackhide__ = True  # pytest shows the call in the test
FAR = timedelta(days=3650)
MISUSES = (BadEvent, BadStep, BadTask, BadTransaction, NoClaim, PayloadTooLarge, BadEffect)
"""What a task fails with that asks for what there is not."""
TASK_ID = "00000000-0000-4000-8000-000000000001"


@dataclass(frozen=True)
class Scene:
    """Where the lives of some work are played."""

    app: Celery
    url: str
    clock: Clock
    ledger: Ledger
    folder: Path
    settings: dict[str, Any]
    timeout: float
    start: Callable[[], Any]
    prepare: Callable[[], Any] | None
    idle: Callable[[], Any] | None
    state: Callable[[], Any] | None

    # --- one life --------------------------------------------------------------------------------------------------

    def play(self, kinds: Collection[str], at: int | None) -> tuple[Trial, list[Point]]:
        """From an empty store to the end; with a kill after the point of this number, counted from 1."""
        self._clear()
        watcher = Watcher(self.folder / "points", frozenset(kinds), at)
        ends = time.monotonic() + self.timeout
        if self.prepare is not None:
            self._apart(self.prepare, watcher.calm, ends)
        started = self._apart(self._start, watcher, ends)
        if started.killed:
            started = self._apart(self._start, watcher, ends)
        self._work(watcher, ends)
        reached = watcher.reached()
        killed_after = reached[at - 1] if at is not None and len(reached) >= at else None
        outcome = self._apart(partial(self._outcome, started.value), watcher.calm, ends).value
        return Trial(killed_after, effects=tuple(self.ledger.effects), **outcome), reached

    def _start(self) -> str | None:
        """The id of the task, if the function has returned one's result."""
        found = getattr(self.start(), "id", None)
        return found if isinstance(found, str) else None

    def _work(self, watcher: Watcher, ends: float) -> None:
        """Worker after worker, until all has ended; between them the clock goes to what is due next."""
        store = ClockedStore(self.url, clock=self.clock)
        try:
            while True:
                found = horizon(store)
                if found.has_ended:
                    return
                work = partial(self._work_until_idle, {one.queue for one in found.alive})
                killed = self._apart(work, watcher, ends).killed
                found = horizon(store)
                if not killed and not found.has_ended:
                    self._go_on(store, found, watcher, ends)
        finally:
            store.dispose()

    def _work_until_idle(self, queues: set[str]) -> None:
        work_until_idle(self.app, self._store(), queues)

    def _go_on(self, store: Store, found: Horizon, watcher: Watcher, ends: float) -> None:
        if self.idle is not None:
            self._apart(self.idle, watcher.calm, ends)
            if horizon(store).alive != found.alive:
                return
        if found.soonest is None or found.soonest > FAR / timedelta(milliseconds=1):
            waiting = ", ".join(f"{one.name}[{one.id}]" for one in found.alive)
            raise ApartError(
                f"nothing goes on by itself, and these have not ended: {waiting}. If they wait for an event or a"
                " resume, give kill_after(idle=...), a function that sends it"
            )
        self.clock.advance_by(timedelta(milliseconds=found.soonest + 1))

    def _apart(self, work: Callable[[], Any], watcher: Watcher, ends: float) -> Ended:
        def moved_work() -> Any:
            with moved(self.app, self.url, self.clock, **self.settings):
                points.listen(watcher)
                self.ledger.after = watcher.effect
                return work()

        return apart(moved_work, self.folder, max(0.0, ends - time.monotonic()))

    def _store(self) -> Store:
        argus = Argus.of(self.app)
        assert argus is not None
        return argus.runtime.store

    def _clear(self) -> None:
        for name in ("points", "log"):
            (self.folder / name).unlink(missing_ok=True)
        self.ledger.clear()
        self.clock.reset()
        empty(Store(self.url))

    def _outcome(self, task_id: str | None) -> dict[str, Any]:
        found = [(one, self._result(one.id)) for one in list_tasks(self._store(), TaskFilter(), 100_000)]
        return {
            "tasks": tuple(sorted((one.name, str(one.state), repr(result)) for one, result in found)),
            "misused": tuple(f"{one.name}: {result!r}" for one, result in found if isinstance(result, MISUSES)),
            "state": None if self.state is None else _compared(self.state()),
            "result": None if task_id is None else _portable(self._result(task_id)),
        }

    def _result(self, task_id: str) -> Any:
        return self.app.AsyncResult(task_id).result


def kill_after_each(scene: Scene, kinds: Collection[str], most: int | None) -> Report:
    """Raises ``AssertionError``, which tells all differences, if a kill has made one."""
    undisturbed, reached = scene.play(kinds, None)
    if not reached:
        raise AssertionError(
            f"there was nothing to be killed after: the work came to no point of the kinds {', '.join(sorted(kinds))}."
            " Is the task durable, and does it do that?"
        )
    trials: list[Trial] = []
    if undisturbed.misused:
        raise AssertionError(
            "\n".join(["the work cannot be done as it is written, killed or not:", *undisturbed.misused])
        )
    failures: list[str] = []
    for at in chosen(len(reached), most):
        try:
            trial, _ = scene.play(kinds, at)
        except ApartError as error:
            failures.append(f"killed after {reached[at - 1]} (point {at} of {len(reached)}): {error}")
            continue
        trials.append(trial)
        failures += [f"{_where(trial, reached, at)}: {one}" for one in differences(undisturbed, trial)]
    if failures:
        raise AssertionError("\n".join(["a kill has made a difference:", *failures]))
    return Report(tuple(reached), undisturbed, tuple(trials))


def _where(trial: Trial, reached: Sequence[Point], at: int) -> str:
    if trial.killed_after is None:
        return f"point {at} of {len(reached)} ({reached[at - 1]}) did not come again, so that nothing was killed"
    return f"killed after {trial.killed_after} (point {at} of {len(reached)})"


def chosen(count: int, most: int | None) -> list[int]:
    """The numbers of all points; of more than ``most``, so many spread over them, with the first and the last."""
    if most is None or count <= most:
        return list(range(1, count + 1))
    return sorted({1 + round(index * (count - 1) / max(1, most - 1)) for index in range(most)})


def _portable(value: Any) -> Any:
    return value if _is_portable(value) else repr(value)


def _compared(state: Any) -> Any:
    if not _is_portable(state):
        raise TypeError(
            f"state() has returned {state!r:.200}, which cannot be handed to another process to be compared: return"
            " plain values"
        )
    return state


def _is_portable(value: Any) -> bool:
    try:
        pickle.loads(pickle.dumps(value))
    except Exception:
        return False
    return True


@dataclass(frozen=True)
class Killing:
    """``kill_after(task, args)``."""

    url: str
    ledger: Ledger
    folder: Path

    def __call__(
        self,
        work: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        app: Celery | None = None,
        points: Collection[str] = POINTS,
        prepare: Callable[[], Any] | None = None,
        idle: Callable[[], Any] | None = None,
        state: Callable[[], Any] | None = None,
        most: int | None = None,
        timeout: float = 120,
        **settings: Any,
    ) -> Report:
        """Let the work live once undisturbed, and once for each durable point, killed there by signal 9.

        ``work`` is a task, with its arguments, or a function that enqueues, with ``app``, and is called again if it is
        killed. Raises ``AssertionError`` if a kill makes a difference: to the effects in the ledger, to the
        tasks, their states and results, or to what ``state()`` returns. ``prepare`` is called before each life,
        ``idle`` when nothing goes on by itself. ``points`` are kinds of points; ``most`` so many of them, spread.
        ``timeout`` is of one life, in seconds.
        """
        kinds = (points,) if isinstance(points, str) else tuple(points)
        check_kinds(kinds)
        check_work(work, args, kwargs, app)
        check_calls(prepare=prepare, idle=idle, state=state)
        check_numbers(most, timeout)
        check_settings(self.url, settings, OWN)
        if app is None:
            app = work.app
            start = partial(_enqueue, work, args, kwargs or {})
        else:
            start = partial(work, *args, **(kwargs or {}))
        stores.prepare(app, self.url)
        folder = self.folder / "kill_after"
        folder.mkdir(exist_ok=True)
        scene = Scene(app, self.url, Clock(), self.ledger, folder, settings, timeout, start, prepare, idle, state)
        return kill_after_each(scene, kinds, most)


def _enqueue(task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Under one id in all lives, so that what is derived from it is the same."""
    return task.apply_async(args, kwargs, task_id=TASK_ID)
