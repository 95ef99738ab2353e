"""What never comes, because what leads to it failed: it is told so, and nothing is left waiting for it."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any

from celery import states
from celery.app.task import Context

from argus_celery.flow.abandon import abandon
from argus_celery.hooks.attached import attached
from argus_celery.hooks.backend import abandoning
from argus_celery.hooks.outcome import failure_document, told


def fail_unstarted(
    backend: Any,
    signatures: Iterable[Any] | None,
    error: BaseException,
    traceback: Any = None,
    store_result: bool = True,
    state: str = states.FAILURE,
    told_already: str | None = None,
) -> None:
    """Fail the tasks of these signatures: their results, their parts of chords, and rows that wait for them.

    Doing it again, after a crash in the middle, changes nothing.
    """
    unstarted = [_request_of(one) for one in _tasks_in(signatures or ())]
    before = abandoning.set(True)
    try:
        for request in unstarted:
            if store_result and state in states.PROPAGATE_STATES and request.id and request.id != told_already:
                backend.store_result(request.id, error, state, traceback=traceback, request=request)
    finally:
        abandoning.reset(before)
    end_waiting(backend.app, [request.id for request in unstarted if request.id], error, traceback)
    for request in unstarted:
        if request.chord:
            backend.on_chord_part_return(request, state, error)


def following(request: Any) -> list[str]:
    """The ids of what ``fail_unstarted`` tells when the task of this request fails: chains, chords and their bodies."""
    ids: list[str] = []
    todo = [*(request.chain or ()), *([request.chord] if request.chord else ())]
    while todo:
        for one in _tasks_in([todo.pop()]):
            options = one.get("options") or {}
            if options.get("task_id") and options["task_id"] not in ids:
                ids.append(options["task_id"])
                todo += [options["chord"]] if options.get("chord") else ()
    return ids


def end_waiting(app: Any, task_ids: list[str], error: BaseException, traceback: Any = None) -> None:
    """Fail the rows of tasks that were replaced by what never comes."""
    abandon(attached(app).runtime, task_ids, told(error), failure_document(app, error, traceback))


def _tasks_in(signatures: Iterable[Any]) -> Iterator[Any]:
    """The single tasks that these would have started, and those chained behind them."""
    for signature in signatures:
        kind, inside = signature.get("subtask_type"), signature.get("kwargs") or {}
        if kind in ("chain", "group"):
            yield from _tasks_in(inside.get("tasks") or ())
        elif kind == "chord":
            yield from _tasks_in([inside["body"]] if inside.get("body") else ())
        else:
            yield signature
        yield from _tasks_in((signature.get("options") or {}).get("chain") or ())


def _request_of(signature: Any) -> Context:
    """Enough of a request for result backends, as Celery makes it for a task in a chain."""
    request = Context(copy.copy(dict(signature)))
    request.update(request.options or {})
    request.id, request.group = request.options.get("task_id"), request.options.get("group_id")
    return request
