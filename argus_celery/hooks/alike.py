"""Alike: many calls of one task differ in their ids and arguments only. The rest is made by Celery once and copied.

The first two calls of a kind go through Celery; what is copied from the first must give the second to the byte. Where
anybody watches or changes single calls (signals, wrapped methods, routers, tasks of an own kind), all of them do.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from celery import Celery, Task, signals
from celery._state import get_current_task
from celery.app import routes
from celery.app.task import __file__ as CELERYS_TASK
from celery.backends.rpc import RPCBackend
from celery.canvas import Signature
from celery.utils.saferepr import saferepr
from kombu.serialization import dumps, registry
from kombu.utils.uuid import uuid

from argus_celery.flow.checks import check
from argus_celery.hooks.durable import options_of
from argus_celery.records import NewTask

_OURS = str(Path(__file__).parents[1])
_KEY = "argus_key"
_SAME_FOR_ALL = ("queue", "priority")
_NOTHING_FOLLOWS = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}

Kind = tuple[Any, ...]


class Calls:
    """Calls of one batch, whose tasks are being collected in this list."""

    def __init__(self, app: Celery, rt: Any, collected: list[NewTask]) -> None:
        self._app, self._rt, self._collected = app, rt, collected
        self._first: dict[Kind, NewTask | None] = {}
        self._proven: set[Kind] = set()
        self._is_plain = _is_plain(app)

    def apply(self, signature: Any) -> Any:
        """The result of the call, as ``signature.apply_async()`` gives it."""
        kind = self._kind(signature) if self._is_plain else None
        if kind is None:
            return signature.apply_async()
        if kind in self._proven:
            return self._copied(kind, signature)
        before = len(self._collected)
        result = signature.apply_async()
        made = self._collected[before:]
        if kind not in self._first:
            self._first[kind] = made[0] if len(made) == 1 and _is_simple(made[0]) else None
        elif (first := self._first[kind]) is not None:
            if len(made) == 1 and self._copy(first, signature, made[0].id) == made[0]:
                self._proven.add(kind)
            else:
                self._first[kind] = None
        return result

    def _kind(self, signature: Any) -> Kind | None:
        if type(signature) is not Signature or signature.get("subtask_type"):
            return None
        options = signature["options"]
        same = tuple(options.get(name) for name in _SAME_FOR_ALL)
        if not options.keys() <= {_KEY, *_SAME_FOR_ALL} or not all(isinstance(one, (str, int)) for one in same if one):
            return None
        if type(signature["args"]) not in (tuple, list) or type(signature["kwargs"]) is not dict:
            return None
        name = signature["task"]
        kind = (name, *same)
        if kind not in self._first and not _is_ordinary(self._app, self._app._tasks.get(name)):
            self._first[kind] = None
        return kind

    def _copied(self, kind: Kind, signature: Any) -> Any:
        task, first = self._app._tasks[signature["task"]], self._first[kind]
        assert first is not None
        if task.typing:
            task.__header__(*signature["args"], **signature["kwargs"])
        new = self._copy(first, signature, uuid())
        check(self._rt, [new])
        self._collected.append(new)
        return task.AsyncResult(new.id)

    def _copy(self, first: NewTask, signature: Any, task_id: str) -> NewTask:
        args, kwargs = signature["args"], signature["kwargs"]
        message, amqp = first.message, self._app.amqp
        levels = self._app.conf.task_repr_maxlevels
        serializer = registry.type_to_name[message.content_type]
        _, encoding, data = dumps((args, kwargs, _NOTHING_FOLLOWS), serializer=serializer)
        headers = {
            **message.headers,
            "id": task_id,
            "root_id": task_id,
            "argsrepr": saferepr(args, amqp.argsrepr_maxsize, maxlevels=levels),
            "kwargsrepr": saferepr(kwargs, amqp.kwargsrepr_maxsize, maxlevels=levels),
        }
        wire = replace(
            message,
            body=data.encode(encoding) if isinstance(data, str) else data,
            headers=headers,
            properties={**message.properties, "correlation_id": task_id},
        )
        key = signature["options"].get(_KEY)
        return replace(first, id=task_id, root_id=task_id, message=wire, key=key)


def _is_simple(task: NewTask) -> bool:
    """Is nothing about it reckoned from the time of its call, or packed?"""
    times = (task.delay_ms, task.due_at, task.expires_in_ms, task.expires_at)
    return all(one is None for one in times) and "compression" not in task.message.headers


def _is_plain(app: Celery) -> bool:
    """Does nobody look at single calls of this app, or change them?"""
    watched = (signals.before_task_publish.receivers, signals.after_task_publish.receivers)
    return (
        not any(watched)
        and get_current_task() is None
        and not app.conf.task_always_eager
        and _behind_ours(app.send_task).__code__.co_filename == Celery.__init__.__code__.co_filename
        and all(type(route) is routes.MapRoute for route in app.amqp.router.routes)
        and not isinstance(app.backend, RPCBackend)
    )


def _is_ordinary(app: Celery, task: Any) -> bool:
    """A task of this app that Celery itself calls, and of which no call is told from another by its arguments."""
    if task is None or task.app is not app or task._dump_pydantic_arguments is not None:
        return False
    options, cls = options_of(task), type(task)
    return (
        not options.limits
        and options.unique is None
        and cls.apply_async.__code__.co_filename == CELERYS_TASK
        and cls.shadow_name is Task.shadow_name
        and cls.AsyncResult.__code__.co_filename.startswith((CELERYS_TASK, _OURS))
    )


def _behind_ours(function: Any) -> Any:
    while function.__code__.co_filename.startswith(_OURS):
        function = function.__wrapped__
    return function
