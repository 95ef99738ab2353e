"""How a run ended, as one value: the state, the result document and what follows."""

from __future__ import annotations

from typing import Any

from celery import Celery, states
from kombu.exceptions import EncodeError
from kombu.utils.encoding import safe_repr, safe_str

from argus_celery.errors import PayloadTooLarge
from argus_celery.hooks.attached import attached
from argus_celery.hooks.outbox import Execution
from argus_celery.records import Outcome, TaskState


class ResultTooLarge(PayloadTooLarge, EncodeError):
    """An ``EncodeError``, so that Celery fails the task with it as with a result that does not serialise."""


def succeeded(execution: Execution, app: Celery, result: Any, request: Any, *, keep: bool, owed: bool) -> Outcome:
    """Raises ``EncodeError`` if the result is kept and does not serialise, or is too large."""
    document = _document(app, result, states.SUCCESS, None, request) if keep else None
    _check_size(app, document, request)
    return Outcome(TaskState.SUCCEEDED, result=document, undelivered=owed, continuations=tuple(execution.continuations))


def failed(
    execution: Execution, app: Celery, error: BaseException, traceback: Any, request: Any, *, owed: bool = False
) -> Outcome:
    """A failure always has a document: one that does not serialise, or is too large, is told in words."""
    try:
        document = _document(app, error, states.FAILURE, traceback, request)
        _check_size(app, document, request)
    except Exception:
        document = _document(app, _in_words(app, error), states.FAILURE, None, None)
    return Outcome(
        TaskState.FAILED,
        result=document,
        error=_shortened(safe_repr(error)),
        undelivered=owed,
        continuations=tuple(execution.continuations),
    )


def silent(execution: Execution, state: TaskState, why: str) -> Outcome:
    """An end without a result."""
    return Outcome(state, error=why, continuations=tuple(execution.continuations))


def _document(app: Celery, result: Any, state: str, traceback: Any, request: Any) -> bytes:
    argus: Any = attached(app)
    document: bytes = argus.results.document(result, state, traceback, request)
    return document


def _check_size(app: Celery, document: bytes | None, request: Any) -> None:
    limit = attached(app).settings.max_payload
    if document is not None and len(document) > limit:
        raise ResultTooLarge(
            f"the result of {request.task}[{request.id}] takes {len(document)} bytes, above argus_max_payload"
            f" ({limit}): store the data elsewhere and return a reference, or raise the setting"
        )


def _in_words(app: Celery, error: BaseException) -> Exception:
    limit = min(attached(app).settings.max_payload // 4, 10_000)
    return Exception(f"{type(error).__name__}: {safe_str(error)}"[:limit])


def _shortened(text: str) -> str:
    return text if len(text) <= 2000 else text[:2000] + "…"
