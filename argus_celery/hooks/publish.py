"""Record on publish: every way in which Celery sends a task ends in one function, and durable tasks are recorded there.

The message is recorded and committed first; it is published after that, if it is due and the dispatch window has room.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from celery import Celery
from celery._state import get_current_task
from celery.app.amqp import AMQP

from argus_celery.config import PREFIX, did_you_mean
from argus_celery.errors import BadTask
from argus_celery.flow import chords, enqueue
from argus_celery.flow.checks import check
from argus_celery.hooks import after
from argus_celery.hooks.attached import attached
from argus_celery.hooks.awaiting import sending
from argus_celery.hooks.batch import collected, warn_of_difference
from argus_celery.hooks.durable import DurableOptions, is_durable_name, options_of
from argus_celery.hooks.ids import check_ids, following
from argus_celery.hooks.joining import given, joining_transaction, keep_for_commit
from argus_celery.hooks.keyed import unique_of
from argus_celery.hooks.limits import bounds_of
from argus_celery.hooks.mixing import mix_in
from argus_celery.hooks.newtask import Timed, check_carried, check_times, new_task, placed, wire_message
from argus_celery.hooks.outbox import Execution, execution_here, outbox_here
from argus_celery.records import Bound, Enqueued, NewTask
from argus_celery.store.outer import outer_here

OPTIONS = ["after", "catch_up", "if_failed", "key", "key_conflict", "project", "session", "unique", "using"]
"""What ``apply_async`` takes beyond Celery's own, each as ``argus_<name>``."""
_POSITIONS = ("args", "kwargs", "countdown", "eta", "group_id", "group_index", "expires")


class Recording:
    """Mixed into the app's ``AMQP``."""

    app: Celery

    def as_task_v2(self, task_id: str, name: str, *args: Any, **options: Any) -> Any:
        given, durable = {**dict(zip(_POSITIONS, args, strict=False)), **options}, is_durable_name(self.app, name)
        if durable:
            check_times(f"{name}[{task_id}]", given)  # before Celery reckons with them
        message = super().as_task_v2(task_id, name, *args, **options)  # type: ignore[misc]
        sending(task_id if durable else None)
        timed = Timed(*message)
        timed.countdown = given.get("countdown") or None
        if isinstance(given.get("expires"), (int, float)):
            timed.expires_in = given["expires"]
        return timed

    def as_task_v1(self, task_id: str, name: str, *args: Any, **options: Any) -> Any:
        """``task_protocol=1``: its messages have no place for a token, so durable tasks go by the other one."""
        if is_durable_name(self.app, name):
            return self.as_task_v2(task_id, name, *args, **options)
        return super().as_task_v1(task_id, name, *args, **options)  # type: ignore[misc]

    def _create_task_sender(self) -> Any:
        send = super()._create_task_sender()  # type: ignore[misc]

        def send_task_message(producer: Any, name: str, message: Any, **options: Any) -> Any:
            ours = {key: options.pop(key) for key in list(options) if key.startswith(PREFIX)}
            _check_known(name, ours)
            return send(_Tap(self.app, producer, name, message, ours, options), name, message, **options)

        return send_task_message

    def _retry_publish(self, publish: Any, *args: Any, **kwargs: Any) -> Any:
        """The body has returned; what Celery now publishes for it waits for the completing transaction."""
        execution = outbox_here()
        if execution is None:
            return super()._retry_publish(publish, *args, **kwargs)  # type: ignore[misc]
        execution.leave_body()
        with execution.collecting():
            return publish(*args, **kwargs)


def _check_known(name: str, ours: Iterable[str]) -> None:
    for option in ours:
        short = option.removeprefix(PREFIX)
        if short not in OPTIONS:
            raise BadTask(f"a call of {name} has no option {option}.{did_you_mean(short, OPTIONS, PREFIX)}")


class ArgusAMQP(Recording, AMQP):
    """The ``AMQP`` of an app that has none of its own."""


def install(app: Celery) -> None:
    """Also on an app that has been publishing already."""
    made = mix_in(app, "amqp", Recording, ArgusAMQP)
    if made is not None:
        made.task_protocols = {1: made.as_task_v1, 2: made.as_task_v2}
        for cached in ("send_task_message", "create_task_message"):
            made.__dict__.pop(cached, None)


class _Tap:
    """Stands before a producer for one message."""

    def __init__(
        self, app: Celery, producer: Any, name: str, message: Any, ours: dict[str, Any], options: dict[str, Any]
    ) -> None:
        self._app, self._producer, self._name, self._message = app, producer, name, message
        self._ours, self._queue = ours, options.get("queue")
        self._met = False
        self._kept_back = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def publish(self, body: Any, **publish: Any) -> Any:
        if self._met:
            # What follows its message is an event, of no use while the broker is away.
            return None if self._kept_back else self._producer.publish(body, **publish)
        self._met = True
        ours = given(self._ours)
        if all(one is None for one in ours.values()):
            return self._task(self._name, body, publish)
        with joining_transaction(attached(self._app), **ours):
            return self._task(self._name, body, publish)

    def _task(self, name: str, body: Any, publish: dict[str, Any]) -> Any:
        execution, outbox = execution_here(), outbox_here()
        durable = is_durable_name(self._app, name)
        collecting = outbox is not None and outbox.is_collecting
        if not durable and self._ours.get(after.AFTER):
            raise BadTask(f"{name} is not durable, and cannot come after other tasks: decorate it with @durable")
        if not collecting or (execution is not None and execution.handed_on):
            after.check_following(self._ours, following(body))
        if not durable and not collecting:
            self._join_chord(execution, publish["headers"].get("id"))
            if outer_here() is not None:
                self._kept_back = True
                return keep_for_commit(attached(self._app), wire_message(self._app, body, publish, self._queue))
            return self._producer.publish(body, **publish)
        if not durable:
            assert outbox is not None
            self._kept_back = True
            outbox.plain.append(wire_message(self._app, body, publish, self._queue))
            return None
        argus = attached(self._app)
        options = options_of(self._app._tasks.get(name))
        task = new_task(self._app, body, publish, self._queue, self._message, options)
        task = placed(task, argus, execution, self._ours.get("argus_project"), self._ours.get("argus_key"))
        if (conflict := self._ours.get("argus_key_conflict")) is not None:
            task = replace(task, key_conflict=conflict)
        if outbox is None or task.id != outbox.claim.task_id:  # a retry stays what it is
            unique, limits = self._unique(options, body), self._limits(options, body)
            if unique is not None or limits:
                task = replace(task, unique=unique, limits=limits)
        task = after.linked(task, self._ours, continues=collecting)
        if execution is not None and task.id in execution.added:
            task = replace(task, joins=execution.added.pop(task.id))
        check(argus.runtime, [task])
        if execution is None:
            check_ids(following(body))
        check_carried(self._producer, task.message)
        if outbox is not None and task.id == outbox.claim.task_id:
            self._kept_back = True
            outbox.successor = replace(task, expires_as_before=_expires_as_before(task))
        elif outbox is not None and collecting:
            self._kept_back = True
            outbox.continuations.append(task)
        elif (batch := collected.get()) is not None:
            self._kept_back = True
            batch.append(task)
        else:
            self._record(argus, task)
        return None

    def _unique(self, options: DurableOptions, body: Any) -> str | None:
        task = self._app._tasks.get(self._name)
        return unique_of(task, self._name, options.unique, self._ours.get("argus_unique"), body)

    def _limits(self, options: DurableOptions, body: Any) -> tuple[Bound, ...]:
        args, kwargs, _ = body
        return bounds_of(self._app._tasks.get(self._name), self._name, options.limits, args, kwargs)

    def _join_chord(self, execution: Execution | None, task_id: str | None) -> None:
        """What the body has added to a chord, and is not recorded, is counted before it is sent."""
        chord_id = None if execution is None or task_id is None else execution.added.pop(task_id, None)
        if chord_id is not None:
            chords.add(attached(self._app).runtime, chord_id)

    def _record(self, argus: Any, task: NewTask) -> None:
        # Not called behind a commit of the user's, when the producer is not in hand any more.
        def publish(dispatches: Any) -> Any:
            failed = argus.publisher.send_through(self._producer, dispatches)
            self._kept_back = bool(failed)
            return failed

        self._kept_back = True
        enqueued = enqueue.enqueue(argus.runtime, [task], publish)[0]
        if not enqueued.created:
            _known(self._app, task, enqueued)


def _expires_as_before(task: NewTask) -> bool:
    """Celery gives a retry the expiry of its run."""
    request = getattr(get_current_task(), "request", None)
    expires = task.message.headers.get("expires")
    return expires is not None and request is not None and expires == request.expires


# --- a key that is known ----------------------------------------------------------------------------------------------

_first = threading.local()


def _known(app: Celery, task: NewTask, enqueued: Enqueued) -> None:
    if enqueued.task_id != task.id:
        _first.ids = {task.id: enqueued.task_id}
    warn_of_difference(app, task, enqueued)


def first_result(cls: Any) -> Any:
    """``Task.AsyncResult`` that leads to the first task of the key, where the call met one."""
    make = cls.AsyncResult

    def AsyncResult(self: Any, task_id: str, **kwargs: Any) -> Any:
        ids = _first.__dict__.pop("ids", {})
        return make(self, ids.get(task_id, task_id), **kwargs)

    return AsyncResult
