"""Record on publish: every way in which Celery sends a task ends in one function, and durable tasks are recorded there.

The message is recorded and committed first; it is published after that, if it is due and the dispatch window has room.
"""

from __future__ import annotations

import threading
from typing import Any

from celery import Celery
from celery.app.amqp import AMQP
from celery.utils.imports import symbol_by_name

from argus_celery.flow import enqueue
from argus_celery.flow.checks import check
from argus_celery.hooks.attached import attached
from argus_celery.hooks.awaiting import sending
from argus_celery.hooks.batch import collected, warn_of_difference
from argus_celery.hooks.durable import is_durable_name, options_of
from argus_celery.hooks.newtask import Timed, new_task, placed, wire_message
from argus_celery.hooks.outbox import execution_here, outbox_here
from argus_celery.records import Enqueued, NewTask

PREFIX = "argus_"
_POSITIONS = ("args", "kwargs", "countdown", "eta", "group_id", "group_index", "expires")


class Recording:
    """Mixed into the app's ``AMQP``."""

    app: Celery

    def as_task_v2(self, task_id: str, name: str, *args: Any, **options: Any) -> Any:
        message = super().as_task_v2(task_id, name, *args, **options)  # type: ignore[misc]
        given = {**dict(zip(_POSITIONS, args, strict=False)), **options}
        sending(task_id if is_durable_name(self.app, name) else None)
        timed = Timed(*message)
        timed.countdown = given.get("countdown") or None
        if isinstance(given.get("expires"), (int, float)):
            timed.expires_in = given["expires"]
        return timed

    def _create_task_sender(self) -> Any:
        send = super()._create_task_sender()  # type: ignore[misc]

        def send_task_message(producer: Any, name: str, message: Any, **options: Any) -> Any:
            ours = {key: options.pop(key) for key in list(options) if key.startswith(PREFIX)}
            return send(_Tap(self.app, producer, message, ours, options), name, message, **options)

        return send_task_message

    def _retry_publish(self, publish: Any, *args: Any, **kwargs: Any) -> Any:
        """The body has returned; what Celery now publishes for it waits for the completing transaction."""
        execution = outbox_here()
        if execution is None:
            return super()._retry_publish(publish, *args, **kwargs)  # type: ignore[misc]
        execution.leave_body()
        with execution.collecting():
            return publish(*args, **kwargs)


class ArgusAMQP(Recording, AMQP):
    """The ``AMQP`` of an app that has none of its own."""


def install(app: Celery) -> None:
    """Also on an app that has been publishing already."""
    theirs = symbol_by_name(app.amqp_cls)
    if not issubclass(theirs, Recording):
        app.amqp_cls = ArgusAMQP if theirs is AMQP else type(theirs.__name__, (Recording, theirs), {})
    made = app.__dict__.get("amqp")
    if made is not None and not isinstance(made, Recording):
        made.__class__ = symbol_by_name(app.amqp_cls)
        made.task_protocols = {1: made.as_task_v1, 2: made.as_task_v2}
        for cached in ("send_task_message", "create_task_message"):
            made.__dict__.pop(cached, None)


class _Tap:
    """Stands before a producer for one message."""

    def __init__(self, app: Celery, producer: Any, message: Any, ours: dict[str, Any], options: dict[str, Any]) -> None:
        self._app, self._producer, self._message = app, producer, message
        self._ours, self._queue = ours, options.get("queue")
        self._met = False
        self._kept_back = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def publish(self, body: Any, **publish: Any) -> Any:
        headers = publish.get("headers") or {}
        if self._met or "task" not in headers or "id" not in headers:
            # What follows its message is an event, of no use while the broker is away.
            return None if self._kept_back else self._producer.publish(body, **publish)
        self._met = True
        return self._task(headers["id"], headers["task"], body, publish)

    def _task(self, task_id: str, name: str, body: Any, publish: dict[str, Any]) -> Any:
        execution, outbox = execution_here(), outbox_here()
        durable = is_durable_name(self._app, name)
        collecting = outbox is not None and outbox.is_collecting
        if not durable and not collecting:
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
        check(argus.runtime, [task])
        if outbox is not None and task_id == outbox.claim.task_id:
            self._kept_back = True
            outbox.successor = task
        elif outbox is not None and collecting:
            self._kept_back = True
            outbox.continuations.append(task)
        elif (batch := collected.get()) is not None:
            self._kept_back = True
            batch.append(task)
        else:
            self._record(argus, task)
        return None

    def _record(self, argus: Any, task: NewTask) -> None:
        def publish(dispatches: Any) -> Any:
            failed = argus.publisher.send_through(self._producer, dispatches)
            self._kept_back = bool(failed)
            return failed

        self._kept_back = True
        enqueued = enqueue.enqueue(argus.runtime, [task], publish)[0]
        if not enqueued.created:
            _known(task, enqueued)


# --- a key that is known ----------------------------------------------------------------------------------------------

_first = threading.local()


def _known(task: NewTask, enqueued: Enqueued) -> None:
    if enqueued.task_id != task.id:
        _first.ids = {task.id: enqueued.task_id}
    warn_of_difference(task, enqueued)


def first_result(cls: Any) -> Any:
    """``Task.AsyncResult`` that leads to the first task of the key, where the call met one."""
    make = cls.AsyncResult

    def AsyncResult(self: Any, task_id: str, **kwargs: Any) -> Any:
        ids = _first.__dict__.pop("ids", {})
        return make(self, ids.get(task_id, task_id), **kwargs)

    return AsyncResult
