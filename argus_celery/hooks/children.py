"""Children: a run repeated after a loss names what its body enqueues as the first run did, and enqueues it once.

The id of a child is derived from its parent's id, the retry or replacement it was called in, the step around it, the
call and its occurrence there. A canvas is one call, named by its shape; the ids inside it (tasks, groups, chord bodies)
are numbered in the order in which Celery makes them. Why the ids themselves:
docs/decisions/children-have-derived-ids.md
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from itertools import count
from typing import Any
from uuid import UUID, uuid5

from celery import Celery, canvas
from kombu.utils.uuid import uuid as random_id

from argus_celery.flow.given import Given
from argus_celery.hooks.durable import is_durable_name
from argus_celery.hooks.mapped import called_name
from argus_celery.hooks.outbox import Execution, execution_here

# With another one, or another derivation, a run that is repeated over a deploy enqueues its children again.
_NAMESPACE = UUID("b0c1dd0e-7f0c-4b9e-9a5d-2f6a53c0a7c4")

_CANVASES = (canvas.Signature, canvas._chain, canvas.group, canvas._chord)
_MADE_IN = ("freeze", "apply_async")

_ids: ContextVar[Iterator[str] | None] = ContextVar("argus_ids", default=None)
"""While a canvas is frozen or sent: where its ids come from."""

_lock = threading.Lock()

Call = tuple[str, str | None]
"""(task name, the caller's own key)"""


def install(app: Celery) -> None:
    """For the single calls of this app; for canvases once in a process."""
    app.send_task = _naming(app, app.send_task)
    if canvas.uuid is not canvas_id:
        canvas.uuid = canvas_id
        for cls in _CANVASES:
            for name in _MADE_IN:
                if name in cls.__dict__ and (cls, name) != (canvas.Signature, "apply_async"):
                    setattr(cls, name, _as_one(cls.__dict__[name]))


def _naming(app: Celery, send: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(send)
    def send_task(
        name: str,
        args: Any = None,
        kwargs: Any = None,
        countdown: Any = None,
        eta: Any = None,
        task_id: str | None = None,
        *rest: Any,
        **options: Any,
    ) -> Any:
        execution = _body_here()
        if task_id is None and execution is not None and is_durable_name(app, name):
            what = partial(Given, None, args or (), kwargs or {})
            task_id = str(_derived(execution, [(name, options.get("argus_key"))], what))
        return send(name, args, kwargs, countdown, eta, task_id, *rest, **options)

    return send_task


def canvas_id() -> str:
    """``celery.canvas.uuid``."""
    ids = _ids.get()
    return random_id() if ids is None else next(ids)


def _as_one(make: Callable[..., Any]) -> Callable[..., Any]:
    """The outermost ``freeze`` or ``apply_async`` of a canvas decides for all that it holds."""

    @wraps(make)
    def as_one(self: Any, *args: Any, **options: Any) -> Any:
        ids = None if _ids.get() is not None else _ids_for(self, args, options)
        if ids is None:
            return make(self, *args, **options)
        before = _ids.set(ids)
        try:
            return make(self, *args, **options)
        finally:
            _ids.reset(before)

    return as_one


def _ids_for(signature: Any, args: tuple[Any, ...], options: Mapping[str, Any]) -> Iterator[str] | None:
    execution = _body_here()
    if execution is None:
        return None
    if _id_given(args, options) == execution.claim.task_id:
        return iter(random_id, None)  # what replaces the run is recorded with its end, so once
    calls = list(_calls(execution.argus.app, signature))
    if not any(is_durable_name(execution.argus.app, name) for name in {name for name, _ in calls}):
        return None
    whole = _derived(execution, calls, lambda: Given(None, list(_contents(signature)), {}))
    if not signature.get("subtask_type"):
        return iter([str(whole)])
    return _numbered(whole)


def _numbered(whole: UUID) -> Iterator[str]:
    return (str(uuid5(whole, str(number))) for number in count(1))


@contextmanager
def numbered_ids(whole: str) -> Iterator[None]:
    """The canvases that are called in the block get the same ids whenever it is repeated with this name."""
    before = _ids.set(_numbered(uuid5(_NAMESPACE, whole)))
    try:
        yield
    finally:
        _ids.reset(before)


def _id_given(args: tuple[Any, ...], options: Mapping[str, Any]) -> str | None:
    """To ``freeze``; the first argument of ``apply_async`` is none."""
    given = options.get("_id", args[0] if args else None)
    return given if isinstance(given, str) else None


def _calls(app: Celery, signature: Any) -> Iterator[Call]:
    """The shape of a canvas: its tasks in order, and what holds them."""
    yield called_name(app, signature["task"], signature["kwargs"]), signature["options"].get("argus_key")
    parts = {"chain": ("tasks",), "group": ("tasks",), "chord": ("header", "body")}
    for part in parts.get(signature.get("subtask_type") or "", ()):
        held = signature["kwargs"][part]
        for one in [held] if isinstance(held, Mapping) else held or ():
            yield from _calls(app, one)
        yield "celery.end", None


def _contents(signature: Any) -> Iterator[Any]:
    """What the tasks of a canvas are called with."""
    yield signature["args"]
    for name, value in signature["kwargs"].items():
        held = value if isinstance(value, (list, tuple)) else [value]
        for one in held:
            if isinstance(one, canvas.Signature):
                yield from _contents(one)
            else:
                yield name, one


def _derived(execution: Execution, calls: list[Call], what: Callable[[], Given]) -> UUID:
    call, here = uuid5(_NAMESPACE, repr(calls)), execution.steps.names.here
    with _lock:
        occurrence = here.occurrence(call, what)
    # A step, or an item of a loop, that a later run passes over must not move the occurrences behind it.
    inside = (here.path,) if here.path else ()
    return uuid5(call, repr((execution.claim.task_id, *execution.turn, occurrence, *inside)))


def _body_here() -> Execution | None:
    """The run whose body this is. What follows the body is recorded with its end, and what retries it in its place."""
    execution = execution_here()
    return execution if execution is not None and execution.in_body and not execution.is_collecting else None
