"""Project: the durable unit a user enqueues into, steers and watches."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Literal, TypedDict, Unpack

from argus_celery.asynchronous import AsyncCalls
from argus_celery.config import did_you_mean
from argus_celery.context import joining
from argus_celery.errors import BadOption, BadTask, ProjectClosed, ProjectNotFound, StoreUnavailable
from argus_celery.flow import configure, link, restart, revive, steer, tell
from argus_celery.flow.checks import check_event, check_name
from argus_celery.flow.come_back import Knowledge
from argus_celery.flow.pieces import pieces
from argus_celery.hooks import batch
from argus_celery.hooks.after import AFTER, IF_FAILED, check_waits, parents_in, runs_regardless
from argus_celery.hooks.clock import local_milliseconds
from argus_celery.hooks.deliver import leads_to
from argus_celery.hooks.durable import is_durable_name, lease_ttl_ms
from argus_celery.hooks.joining import joining_transaction
from argus_celery.hooks.limits import Limit, of_project
from argus_celery.hooks.publish import OPTIONS
from argus_celery.records import OnFailure, ProjectInfo, ProjectStatus, TaskState
from argus_celery.store import reports, tasks, timelines
from argus_celery.timeline import Earlier, Timeline

logger = logging.getLogger(__name__)

BATCH = 500
LONGEST_PAGE = 1_000_000
POLL_FROM, POLL_TO = 0.02, 0.5

# Of this context: the same project may be entered by many threads, and twice by one.
_blocks: ContextVar[tuple[AbstractContextManager[None], ...]] = ContextVar("argus_blocks", default=())


class ProjectOptions(TypedDict, total=False):
    """What a project may be given when it is made, and anew by ``configure``."""

    on_failure: str | None
    """``"continue"``, ``"pause"`` or ``"cancel"``: what becomes of it when a task of it has failed for good."""
    deadline: float | datetime | None
    """Seconds from now, or an instant: what has not ended by then is cancelled."""
    priority: int | None
    """Message priority of its tasks, where the call names none."""
    weight: int | None
    """Its share of a queue beside other projects: 2 is twice that of 1."""
    meta: Mapping[str, Any] | None
    """Whatever you want to find again in ``progress()``: what JSON holds."""
    limit: Limit | None
    """How many of its tasks run at once, or start in a time, over all workers."""


def _no_option(option: str) -> str:
    return (
        f"enqueue() has no option {option}.{did_you_mean(option, OPTIONS)} It takes key, key_conflict, after,"
        " if_failed, session and using; all else is set on the signature: charge.s(17).set(argus_unique=False)"
    )


class Project(AsyncCalls):
    """One project of an app, made by its name if there is none. ``with project:`` lets durable calls inside join it."""

    def __init__(self, argus: Any, name: str, **options: Unpack[ProjectOptions]) -> None:
        check_name("a project's name", name)
        self.name = name
        self._argus = argus
        given = {option: value for option, value in options.items() if value is not None}
        values = self._checked(given)
        steer.open_project(argus.runtime, name, values)
        if values:
            self._warn_of_difference(values)

    def __repr__(self) -> str:
        return f"<Project {self.name!r}>"

    def __enter__(self) -> Project:
        """Durable calls of this thread (or asyncio task) join the project until the block is left.

        A thread that is started inside the block does not: enter the project there too, or give ``argus_project``.
        """
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

    # --- configure -------------------------------------------------------------------------------------------------

    def configure(self, **options: Unpack[ProjectOptions]) -> None:
        """Give the project these options; what is not named stays, and ``None`` is the default again.

        Raises ``BadOption``, with nothing written. A new ``priority`` is for tasks to come.
        """
        configure.configure(self._argus.runtime, self.name, self._checked(options))

    def _checked(self, given: Mapping[str, Any]) -> dict[str, Any]:
        deadline = given.get("deadline")
        if isinstance(deadline, datetime):
            what = f"deadline of project {self.name!r}"
            instant = local_milliseconds(deadline, self._argus.app, what, BadOption)
            given = {**given, "deadline": configure.Instant(instant)}
        if "limit" in given:
            given = {**given, "limit": of_project(self.name, given["limit"])}
        values = configure.checked(self._argus.runtime, self.name, given)
        if values.get("on_failure") is OnFailure.CANCEL or given.get("deadline") is not None:
            self._check_can_end()
        return values

    def _warn_of_difference(self, values: Mapping[str, Any]) -> None:
        differing = configure.differing(self._argus.runtime, self.name, values)
        if differing:
            logger.warning(
                "argus: project %r was made with another %s, which stands: project.configure(...) changes it",
                self.name,
                " and ".join(differing),
            )

    # --- enqueue ---------------------------------------------------------------------------------------------------

    def enqueue(
        self,
        signature: Any,
        key: str | None = None,
        key_conflict: str | None = None,
        after: Any = None,
        if_failed: str | None = None,
        *,
        session: Any = None,
        using: str | None = None,
        **unknown: Any,
    ) -> Any:
        """Send a signature as Celery would, in this project; returns what its ``apply_async`` returns.

        ``key`` is the caller's name for one task: enqueued again, it leads to the first one, for as long as that is
        kept. ``key_conflict="error"``: with another task or other arguments it raises ``KeyConflict`` instead;
        ``"first"`` warns, and is what ``argus_key_conflict`` says unless it is set. ``session`` (SQLAlchemy's Session
        or Connection) or ``using`` (a database of Django's): the task is recorded in that transaction, and published
        behind its commit.

        ``after``: results, ids or keys of tasks of this project. The task waits until all have ended; if one fails, is
        revoked or expires, it is abandoned, or runs all the same (``if_failed="run"``). In the body ``current.parents``
        has their results. A chain waits with its first task, a group with each.

        Raises ``ProjectClosed``, ``BadTask``, ``BadTransaction``, and ``StoreUnavailable`` with nothing published.
        """
        if unknown:
            raise BadTask(_no_option(next(iter(unknown))))
        self._check(signature, key)
        parents = parents_in(after)
        if parents:
            check_waits(signature)
        runs_regardless(if_failed)
        options: dict[str, Any] = {"argus_key": key, "argus_key_conflict": key_conflict}
        options |= {AFTER: parents or None, IF_FAILED: if_failed}
        given = {name: value for name, value in options.items() if value is not None}
        with joining(self.name), joining_transaction(self._argus, session, using):
            return signature.apply_async(**given)

    def enqueue_many(self, signatures: Iterable[Any], *, session: Any = None, using: str | None = None) -> list[Any]:
        """Send many signatures; their results in order. One transaction and one pipelined publish per 500.

        An error leaves the batches before it enqueued; give keys (``sig.set(argus_key=...)``) to be able to repeat.
        ``session`` and ``using`` as with ``enqueue``: all of it is in that transaction then.
        """
        results: list[Any] = []
        for some in pieces(signatures, BATCH):
            for signature in some:
                self._check(signature, None)
                if signature.options.get(AFTER):
                    check_waits(signature)
            with joining(self.name), joining_transaction(self._argus, session, using):
                results += batch.apply_all(self._argus, some)
        return results

    def _check(self, signature: Any, key: str | None) -> None:
        name = getattr(signature, "task", None)
        if not isinstance(name, str):
            raise BadTask(f"project {self.name!r} takes signatures, for example charge.s(17), not {signature!r:.100}")
        if name.startswith("celery."):  # a chain, group or chord, whose tasks decide one by one
            if key is not None:
                raise BadTask(f"a key names one task, and {signature!r} is several: give each its own")
        elif not is_durable_name(self._argus.app, name):
            raise BadTask(f"{name} is not durable, and a project holds durable tasks: decorate it with @durable")

    # --- steer -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """No more tasks from outside; children, retries and continuations still come. It completes when drained."""
        self._check_can_end()
        steer.close(self._argus.runtime, self.name)

    def reopen(self) -> None:
        """Take tasks from outside again: a project that was closed, or has completed or failed. An open one stays so.

        One that was cancelled may be reopened too, since its name is not free for another: what was cancelled stays so.
        """
        steer.reopen(self._argus.runtime, self.name)

    def pause(self, running: Literal["finish", "stop"] = "finish") -> None:
        """Nothing that waits is started any more. What runs goes on; with ``running="stop"`` it is told to stop, can
        write nothing more, and runs again after ``resume``: no loss and no retry is charged.

        What cannot be interrupted (a C call in a thread) goes on for nothing; the side effects of its body happen.
        """
        if running not in ("finish", "stop"):
            raise BadOption(f"what runs in project {self.name!r} can finish or stop on a pause, not {running!r}")
        steer.pause(self._argus.runtime, self.name, stop=running == "stop")

    def resume(self) -> None:
        """What was due while the project was paused is due now, in the order in which it came."""
        steer.resume(self._argus.runtime, self.name)

    def cancel(self, reason: str | None = None) -> ProjectStatus:
        """End what waits, and ask what runs to stop. A task that finishes first keeps its outcome; nothing follows it.

        When this returns none is started any more. What runs is told at once where workers hear remote control, else
        by their next renewal. ``reason`` is shown with the project.

        Returns what the project is now: ``cancelled``; of one that had completed or failed nothing is changed, and
        that status comes back.
        """
        self._check_can_end()
        if reason is not None:
            check_name("the reason of a cancel", reason)
        steer.cancel(self._argus.runtime, self.name, reason)
        return self.status

    def send(self, event: str, payload: Any = None) -> bool:
        """Tell the project an event, once for all: whoever waits for it, now or later, reads this payload
        (``current.wait_for``). False if it had been told before, which stands.

        Raises ``BadEvent`` or ``PayloadTooLarge`` with nothing told, ``ProjectClosed`` if the project has ended, and
        ``StoreUnavailable``; when that is called again, False may mean this very call.
        """
        check_event(event)
        return tell.tell(self._argus.runtime, self.name, event, self._argus.results.payload(event, payload))

    def add_after(self, task_id: Any, parents: Any, if_failed: str | None = None) -> None:
        """Let a task that has not begun wait for these too, as ``after`` does; its message in the broker is refused.
        The task is given by its id or key, or as a result.

        Raises ``TaskNotFound``, and ``BadTask`` that says why, with nothing written: the tasks would wait for each
        other for ever, or the task runs or has ended.
        """
        regardless = runs_regardless(if_failed)
        child = getattr(task_id, "id", task_id)
        link.add_after(self._argus.runtime, self.name, child, parents_in(parents), regardless=regardless)

    def retry_failed(
        self, *, state: str | None = None, name: str | None = None, ids: Iterable[Any] | None = None
    ) -> list[str]:
        """Put back every task that failed, died or expired, and return their ids; what they led to comes with them.

        ``state`` (``"failed"``, ``"dead"``, ``"expired"``), ``name`` (a glob: ``"shop.*"``) and ``ids`` (or results)
        choose among them. A choice that meets nothing raises ``TaskNotFound`` or ``NotRetriable``; an empty list of ids
        chooses nothing, and gives an empty list.

        Finished tasks do not run again, abandoned ones follow by themselves, revoked ones stay revoked. A project that
        had ended is closed again; of a cancelled one this raises ``ProjectClosed``. A task runs with the message stored
        last, so that ``request.retries`` goes on where it stood; its losses count from 0 and its expiry is dropped.
        Errbacks that were called may be called again. A result backend other than ``argus://`` shows the old outcome
        until the new one is told, and an ``AsyncResult`` that has seen it keeps it: ask for a new one.
        """
        if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable | None):
            raise BadOption(f"retry_failed of project {self.name!r} takes a list of ids or results, not {ids!r}")
        which = revive.Which(
            states=tasks.RETRIABLE if state is None else (self._retriable_state(state),),
            name=name,
            ids=None if ids is None else frozenset(str(getattr(one, "id", one)) for one in ids),
        )
        return revive.retry_failed(self._argus.runtime, self.name, self._knowledge(), which)

    def _retriable_state(self, state: str) -> TaskState:
        known = [str(one) for one in tasks.RETRIABLE]
        if state not in known:
            near = did_you_mean(str(state), known)
            raise BadOption(f"retry_failed of project {self.name!r} puts back no tasks that are {state!r}.{near}")
        return TaskState(state)

    def retry(self, task_id: str) -> bool:
        """The same for one task; False if it is alive already.

        Raises ``TaskNotFound``, and ``NotRetriable`` for what succeeded, was revoked, or only waited for another.
        """
        return revive.retry(self._argus.runtime, self.name, task_id, self._knowledge())

    def restart(self, task_id: str) -> list[str]:
        """Run a task again that has succeeded, failed, died or expired, and with it all that follows it.

        The rest of its chain, the body of its chord and what was enqueued ``after`` it run again when it has succeeded;
        what of these is alive is ended, and a run of it told to stop. All else is kept: tasks before and beside it, the
        other parts of its chord, what it enqueued from its body (which is not enqueued twice) and what was revoked. The
        steps of what runs again are forgotten, and callbacks (``link``) are called again.

        Returns the ids of what runs again, the task's first. A project that had ended is closed again. Raises
        ``TaskNotFound``, ``NotRetriable`` for what is alive, was revoked or never came, and ``ProjectClosed``.
        """
        return restart.restart(self._argus.runtime, self.name, task_id, self._knowledge())

    def _knowledge(self) -> Knowledge:
        app = self._argus.app
        return Knowledge(partial(lease_ttl_ms, app), partial(leads_to, app))

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
            raise self._gone()
        return info

    def _gone(self) -> ProjectNotFound:
        self._argus.runtime.project_ids.pop(self.name, None)
        return ProjectNotFound(f"project {self.name!r} is gone (pruned): argus.project({self.name!r}) opens a new one")

    def timeline(self, limit: int = 10_000, before: Earlier | None = None) -> Timeline:
        """Who ran what and when: the newest ``limit`` attempts that have ended, and all that run now.

        Older ones are read page by page: ``project.timeline(before=page.earlier)``, until that is None. Each page goes
        through all attempts of the project: seconds for a million. Those of pruned tasks are gone.
        """
        if not isinstance(limit, int) or not 1 <= limit <= LONGEST_PAGE:
            raise ValueError(f"a page of a timeline holds 1 to {LONGEST_PAGE} attempts, not {limit!r}")
        found = timelines.timeline(self._argus.runtime.store, self.name, limit, before)
        if found is None:
            raise self._gone()
        return found

    def join(self, timeout: float | None = None) -> ProjectStatus:
        """Wait until the project has ended, or has drained if it is still open; returns its status.

        Raises ``TimeoutError``. A store that is away is waited for.
        """
        for pause in self._pauses(timeout):
            time.sleep(pause)
            try:
                status = self._settled()
            except StoreUnavailable:
                continue
            if status is not None:
                return status
        raise AssertionError("unreachable")

    def _pauses(self, timeout: float | None) -> Iterator[float]:
        """Look at once, then ever more rarely, until the time is over."""
        if timeout is not None and math.isnan(timeout):
            raise ValueError("join(timeout=...) must be a number of seconds or None, not nan")
        self._argus.runtime.store.check_outside(f"project {self.name!r} cannot be waited for")
        ends = time.monotonic() + timeout if timeout is not None else float("inf")
        yield 0.0
        pause = POLL_FROM
        while (left := ends - time.monotonic()) > 0:
            yield min(pause, left)
            pause = min(pause * 1.5, POLL_TO)
        raise TimeoutError(f"project {self.name!r} has not ended within {timeout:g} s")

    def _settled(self) -> ProjectStatus | None:
        pulse = reports.pulse(self._argus.runtime.store, self.name)
        if pulse is None:
            raise self._gone()
        if pulse.alive:
            return None
        if pulse.status is ProjectStatus.CLOSED:
            # It may still owe an errback or the body of a chord, which are work of its own.
            return self.status if steer.try_complete(self._argus.runtime, self.name) else None
        return pulse.status
